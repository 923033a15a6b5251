"""Opening a session with a TVM RPC server, directly or through a tracker, within a time limit."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple, TypeVar

from autosplit.errors import MachineError, line_of
from autosplit.hardware.devices.device import Rpc

ANSWER_S = 60.0  # to wait for a server, which may be serving another client
SESSION_S = 7 * 86_400  # after which a server drops a client, even one that still works
RETRY_S = 0.5
_INTERNET = (socket.AF_INET, socket.AF_INET6)
_TRACKER_CONNECT_S = 5.0
_TRACKER_TRIES = 3  # a server may have a new match key that its tracker does not know yet

T = TypeVar("T")


class Session(NamedTuple):
    """TVM's session, and a duplicate of its socket if the system shows that."""

    remote: Any
    socket: socket.socket | None = None


def open_session(device: Rpc, wait_s: float) -> Session:
    """A session with a server; one that refuses is tried again for ``wait_s`` seconds.

    Raises MachineError, with the address and the remedy, where no session can be opened.
    """
    deadline = time.monotonic() + wait_s
    while True:
        remaining = deadline - time.monotonic()
        seconds = max(ANSWER_S, remaining)
        try:
            return within(seconds, partial(greet, device, seconds))
        except Exception as error:  # TVM raises errors of many kinds
            if remaining <= 0:
                raise MachineError(_absence(device, error)) from error
        time.sleep(min(RETRY_S, max(remaining, 0.0)))


def greet(device: Rpc, seconds: float) -> Session:
    """Ask a server for a session; TVM waits for the answer without a limit."""
    if not device.by_tracker:
        return _connect(device.host, device.port, device.key)
    for _ in range(_TRACKER_TRIES - 1):
        server = _server_of_tracker(device, seconds)
        with contextlib.suppress(Exception):
            return _connect(*server)
    return _connect(*_server_of_tracker(device, seconds))


def _server_of_tracker(device: Rpc, seconds: float) -> tuple[str, int, str]:
    """Ask a tracker for the host, port and match key of a server; it answers once one is free.

    TVM's own tracker session would go on trying to reach a tracker that is not there.
    """
    from tvm.rpc import base

    address = device.host, device.port
    with socket.create_connection(address, min(_TRACKER_CONNECT_S, seconds)) as tracker:
        tracker.settimeout(seconds)
        tracker.sendall(struct.pack("<i", base.RPC_TRACKER_MAGIC))
        if struct.unpack("<i", base.recvall(tracker, 4))[0] != base.RPC_TRACKER_MAGIC:
            raise ValueError("what listens there is not a TVM tracker")
        base.sendjson(tracker, [base.TrackerCode.REQUEST, device.key, "", 1])
        _, (host, port, match_key) = base.recvjson(tracker)
        return host, port, match_key


def within(
    seconds: float, work: Callable[[], T], reason: str = "it may be serving another client"
) -> T:
    """Run ``work`` in a thread and return its result. Raises TimeoutError after ``seconds``.

    A late result is dropped. The thread stays; a ThreadPoolExecutor would wait for it at exit.
    """
    future: Future[T] = Future()
    threading.Thread(target=_fulfil, args=(future, work), daemon=True).start()
    try:
        return future.result(seconds)
    except TimeoutError:
        if future.done():
            raise  # the work itself ran into a timeout
        raise TimeoutError(f"no answer in {seconds:.0f} s, {reason}") from None
    finally:
        # The traceback of an error holds this frame; the frame must not hold a session.
        del future


def _fulfil(future: Future[T], work: Callable[[], T]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)


def _connect(host: str, port: int, key: str) -> Session:
    from tvm import rpc

    before = _open_sockets()
    remote = rpc.connect(host, port, key, session_timeout=SESSION_S)
    # TVM does not expose its socket: it is the new one whose peer has the server's port.
    for number, _ in _open_sockets() - before:
        with contextlib.suppress(OSError):
            duplicate = socket.socket(fileno=os.dup(number))
            if duplicate.family in _INTERNET and duplicate.getpeername()[1] == port:
                return Session(remote, duplicate)
            duplicate.close()
    return Session(remote)


def _open_sockets() -> set[tuple[int, int]]:
    """The descriptor and the inode of each socket of this process."""
    sockets = set()
    with contextlib.suppress(OSError):
        for name in os.listdir("/dev/fd"):
            with contextlib.suppress(OSError):
                status = os.fstat(int(name))
                if stat.S_ISSOCK(status.st_mode):
                    sockets.add((int(name), status.st_ino))
    return sockets


def _absence(device: Rpc, error: Exception) -> str:
    reason = line_of(error, last=True)
    if "Connect to" in reason or isinstance(error, ConnectionRefusedError):
        reason = "connection refused"
    address = f"{device.host}:{device.port}"
    if device.by_tracker:
        return (
            f"device '{device}': the tracker at {address} has no server registered under key "
            f"'{device.key}' ({reason}); start one: "
            f"python -m tvm.exec.rpc_server --tracker {address} --key {device.key}"
        )
    return (
        f"device '{device}': no TVM RPC server answers at {address} ({reason}); start one there: "
        f"python -m tvm.exec.rpc_server --host 0.0.0.0 --port {device.port} "
        f"--port-end {device.port + 1}"
    )
