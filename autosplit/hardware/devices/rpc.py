"""A session with a TVM RPC server: shared by all that runs there, ended when the last of it lets go.

A server serves one session at a time, so a process must have one a server; and who holds a session idly keeps others out.
"""

from __future__ import annotations

import contextlib
import gc
import socket
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from autosplit.errors import MachineError, StageError, line_of
from autosplit.hardware.devices.device import Device, Rpc

ANSWER_S = 60.0  # for an answer from a server that may be serving somebody else
RETURN_S = 120.0  # for a server that was there before to be back
SESSION_S = 7200.0  # after which a server is free again of a client that vanished without a word
_RETRY_S = 0.5
_PROBE_S = 5.0
_TRIES = 3  # a server may have changed its match key since the tracker heard of it
_KEPT_BYTES = 1 << 30  # of stages that are loaded on a server and not in use


class DeviceLost(StageError):
    """A server went away while something ran there."""


class ServerConnection:
    """One session with a server. Its calls may come from several threads; they run one at a time."""

    def __init__(self, device: Rpc, session: Any) -> None:
        self.device = device
        self._session = session
        self._lock = threading.Lock()
        self._sent_files = 0
        self._modules: OrderedDict[str, tuple[int, Any]] = OrderedDict()
        self.tvm_device = session.device(device.kind, device.number)
        self._ping = session.get_function("runtime.NumThreads")

    @property
    def tvm_devices(self) -> list[Any]:
        """The devices of a virtual machine there: its own, and the processor for what runs beside it."""
        return (
            [self.tvm_device]
            if self.device.kind == "cpu"
            else [self.tvm_device, self._session.cpu(0)]
        )

    @property
    def is_alive(self) -> bool:
        """Whether the server still answers."""
        try:
            self.call()
        except Exception:  # TVM raises errors of many kinds for a closed connection
            return False
        return True

    def call(self) -> int:
        """A call there and back that does nothing; returns the number of kernel threads the server would use."""
        return int(self._ping())

    def ask(self, function: str) -> str | None:
        """What a function of the server's TVM returns as text; None where the server has no such function."""
        try:
            return str(self._session.get_function(function)())
        except Exception:
            if not self.is_alive:
                raise self._lost("it was asked for its target") from None
            return None

    def load(self, key: str, write: Callable[[Path], object]) -> Any:
        """The module of the library that ``write`` makes, loaded there; one of the same ``key`` is sent once.

        The file is removed from the server as soon as it is loaded.
        """
        with self._lock:
            if key not in self._modules:
                self._modules[key] = self._sent(write)
            self._modules.move_to_end(key)
            while (
                len(self._modules) > 1
                and sum(size for size, _ in self._modules.values()) > _KEPT_BYTES
            ):
                self._modules.popitem(last=False)
            return self._modules[key][1]

    @contextlib.contextmanager
    def guarded(self, doing: str) -> Iterator[None]:
        """Raises DeviceLost, or StageError where the server still answers, for whatever goes wrong in the block."""
        try:
            yield
        except Exception as error:
            if isinstance(error, StageError):
                raise
            if not self.is_alive:
                raise self._lost(doing) from error
            raise StageError(
                f"device '{self.device}' failed while {doing}: {line_of(error, last=True)}"
            ) from error

    def _sent(self, write: Callable[[Path], object]) -> tuple[int, Any]:
        with tempfile.TemporaryDirectory(prefix="autosplit-rpc-") as folder:
            self._sent_files += 1  # a loader takes two libraries of one name for the same, though the first be removed
            file = Path(folder) / f"stage{self._sent_files}.so"
            write(file)
            with self.guarded("a stage was loaded"):
                self._session.upload(str(file), target=file.name)
                try:
                    return file.stat().st_size, self._session.load_module(file.name)
                finally:
                    self._session.remove(file.name)

    def _lost(self, doing: str) -> DeviceLost:
        return DeviceLost(f"device '{self.device}' was lost while {doing}; start its server again")


_OPEN: WeakValueDictionary[Rpc, ServerConnection] = WeakValueDictionary()
_OPENING = threading.Lock()


def connect(device: Rpc, wait_s: float = 0.0) -> ServerConnection:
    """The connection of this process to a server, opened if there is none that answers; hold it while it is in use.

    A server that refuses is tried again for ``wait_s`` seconds. Raises MachineError, naming the address and the remedy,
    where it does not come.
    """
    with _OPENING:
        found = _OPEN.get(device)
        if found is None or not found.is_alive:
            found = ServerConnection(device, _session(device, wait_s))
            _OPEN[device] = found
        return found


@contextlib.contextmanager
def reached(devices: Iterable[Device], wait_s: float = 0.0) -> Iterator[list[ServerConnection]]:
    """Hold the servers among some devices open for a while; see ``connect`` for ``wait_s`` in seconds.

    Raises MachineError where one is not there.
    """
    servers = [d for d in dict.fromkeys(devices) if isinstance(d, Rpc)]
    held = [connect(d, wait_s) for d in servers]
    try:
        yield held
    finally:
        held.clear()
        if any(d in _OPEN for d in servers):
            gc.collect()  # the traceback of an error may hold one, and that keeps others out


def _session(device: Rpc, wait_s: float) -> Any:
    deadline = time.monotonic() + wait_s
    pause = threading.Event()
    while True:
        left = deadline - time.monotonic()
        try:
            return _within(max(ANSWER_S, left), lambda: _greet(device))
        except Exception as error:  # TVM raises errors of many kinds
            if left <= 0:
                raise MachineError(_absent(device, _reason(error))) from error
        pause.wait(min(_RETRY_S, max(left, 0.0)))


def _greet(device: Rpc) -> Any:
    from tvm import rpc

    if not device.by_tracker:
        return rpc.connect(device.host, device.port, device.key, session_timeout=SESSION_S)
    socket.create_connection(
        (device.host, device.port), _PROBE_S
    ).close()  # TVM tries a tracker for a minute
    return rpc.connect_tracker(device.host, device.port).request(
        device.key, session_timeout=SESSION_S, max_retry=_TRIES
    )


def _within(seconds: float, work: Callable[[], Any]) -> Any:
    """The result of ``work``; TimeoutError after ``seconds``: TVM waits for a greeting for ever.

    What comes later is dropped, which ends it.
    """
    found: list[tuple[Any, BaseException | None]] = []

    def run() -> None:
        result: tuple[Any, BaseException | None]
        try:
            result = work(), None
        except BaseException as error:
            result = None, error
        if not late.is_set():
            found.append(result)

    late = threading.Event()
    thread = threading.Thread(target=run, name="connecting", daemon=True)
    thread.start()
    thread.join(seconds)
    if not found:
        late.set()
        raise TimeoutError(f"no answer in {seconds:.0f} s, it may be serving somebody else")
    result, error = found.pop()
    if error is None:
        return result
    try:
        raise error
    finally:
        del (
            error
        )  # or its traceback would hold it, and with it those who asked, and their connections


def _reason(error: Exception) -> str:
    text = line_of(error, last=True)
    return "nothing takes connections there" if "Connect to" in text else text


def _absent(device: Rpc, reason: str) -> str:
    address = f"{device.host}:{device.port}"
    if device.by_tracker:
        return (
            f"device '{device}': the tracker at {address} gives no server of key '{device.key}' ({reason}); start one: "
            f"python -m tvm.exec.rpc_server --tracker {address} --key {device.key}"
        )
    return (
        f"device '{device}': no TVM RPC server answers at {address} ({reason}); start one there: "
        f"python -m tvm.exec.rpc_server --host 0.0.0.0 --port {device.port} --port-end {device.port + 1}"
    )
