"""The connections of this process to TVM RPC servers: calls, loaded libraries, and their loss.

A server serves one session at a time, so a process has one connection per server, which all its
users share. The last user closes it, because an idle one would keep other processes out.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import socket
import struct
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from autosplit.errors import StageError, line_of
from autosplit.hardware.devices import device as devices
from autosplit.hardware.devices.device import Device, Rpc
from autosplit.hardware.devices.session import Session, open_session

RETURN_S = 120.0  # how long to wait for a server that was lost to come back


class ServerConnection:
    """One session with a server. Calls may come from several threads; they run one at a time.

    A call fails after SILENCE_S without an answer, if the system shows the session's socket.
    """

    def __init__(self, device: Rpc, session: Session) -> None:
        self.device = device
        self._session, self._socket = session
        self._is_silent = False
        if self._socket is not None:
            # TVM has no time limit of its own for a call.
            _limit_silence(self._socket, devices.SILENCE_S)
            weakref.finalize(self, self._socket.close)
        self._numbers = count(1)  # of the files that were sent
        self.tvm_device = self._session.device(device.kind, device.number)
        # Any function that computes nothing and is in every TVM.
        self._ping = self._session.get_function("runtime.NumThreads")

    @property
    def is_alive(self) -> bool:
        """Whether the server still answers; a connection that does not is closed."""
        try:
            self.call()
        except Exception as error:  # TVM raises errors of many kinds for a closed connection
            self._cut_off(error)
            return False
        return True

    def call(self) -> int:
        """A round trip that computes nothing; returns how many threads kernels use there."""
        return int(self._ping())

    def ask(self, function: str) -> str | None:
        """The text that a function of the server's TVM returns; None if it has no such function."""
        with self.guarded("it was asked for its target"):
            try:
                return str(self._session.get_function(function)())
            except AttributeError:
                return None

    @contextlib.contextmanager
    def guarded(self, activity: str) -> Iterator[None]:
        """Turn any error of the block into a StageError, which says whether the server was lost."""
        try:
            yield
        except StageError:
            raise
        except Exception as error:
            self._cut_off(error)
            problem = f"failed while {activity}: {line_of(error, last=True)}"
            if not self.is_alive:
                silence = f" (no answer in {devices.SILENCE_S:.0f} s)" if self._is_silent else ""
                problem = f"was lost while {activity}{silence}; start its server again"
            raise StageError(f"device '{self.device}' {problem}") from error

    def load(self, write: Callable[[Path], object]) -> Any:
        """Load the library that ``write`` makes; it stays there while the result is referenced."""
        with tempfile.TemporaryDirectory(prefix="autosplit-rpc-") as folder:
            # A loader takes two libraries of one name for the same one, even after a removal.
            file = Path(folder) / f"stage{next(self._numbers)}.so"
            write(file)
            with self.guarded("a stage was loaded"):
                self._session.upload(str(file), target=file.name)
                try:
                    return self._session.load_module(file.name)
                finally:
                    self._session.remove(file.name)

    def _cut_off(self, error: Exception) -> None:
        """Close the connection after a timeout: the next call would read the late answer."""
        if self._socket is None or os.strerror(errno.EAGAIN) not in str(error):
            return
        self._is_silent = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


_CONNECTIONS = weakref.WeakValueDictionary[Rpc, ServerConnection]()
_OPENING: dict[Rpc, threading.Lock] = {}  # one per server: a silent server blocks no other one


def connect(device: Rpc, wait_s: float = 0.0) -> ServerConnection:
    """The connection to a server, opened if none answers; keep a reference while it is in use.

    If the server refuses, retry for ``wait_s`` seconds. Raises MachineError, with the address and
    the remedy, where it does not answer.
    """
    with _OPENING.setdefault(device, threading.Lock()):
        connection = _CONNECTIONS.get(device)
        if connection is None or not connection.is_alive:
            connection = ServerConnection(device, open_session(device, wait_s))
            _CONNECTIONS[device] = connection
        return connection


@contextlib.contextmanager
def reached(devices: Iterable[Device], wait_s: float = 0.0) -> Iterator[list[ServerConnection]]:
    """Keep the connections to the servers among some devices open in the block.

    Raises MachineError where a server does not answer in ``wait_s`` seconds.
    """
    servers = [d for d in dict.fromkeys(devices) if isinstance(d, Rpc)]
    connections = [connect(d, wait_s) for d in sorted(servers, key=str)]  # one order: no deadlock
    try:
        yield connections
    finally:
        connections.clear()
        if any(server in _CONNECTIONS for server in servers):
            gc.collect()  # the traceback of an error may hold a connection


def _limit_silence(connected_socket: socket.socket, seconds: float) -> None:
    """End a send or receive that makes no progress, whoever calls it, with EAGAIN."""
    # A struct timeval, as the kernel reads it.
    limit = struct.pack("ll", *divmod(int(seconds * 1e6), 1_000_000))
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        connected_socket.setsockopt(socket.SOL_SOCKET, option, limit)
