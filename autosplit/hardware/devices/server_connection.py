"""A connection to a TVM RPC server: its calls, the libraries loaded there, and its loss."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import tempfile
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from autosplit.errors import StageError, line_of
from autosplit.hardware.devices import device as devices
from autosplit.hardware.devices.device import Rpc

LOADED_BYTES = 1 << 30  # of libraries that stay loaded on a server


class DeviceLost(StageError):
    """A server went away, or stopped answering, while something ran there."""


class ServerConnection:
    """One session with a server. Calls may come from several threads; they run one at a time.

    ``session`` is TVM's. A call on its ``connected_socket`` ends after SILENCE_S without an answer.
    """

    def __init__(
        self, device: Rpc, session: Any, connected_socket: socket.socket | None = None
    ) -> None:
        self.device = device
        self._session = session
        self._socket = connected_socket
        self._is_silent = False
        if connected_socket is not None:
            # TVM has no time limit of its own for a call.
            _limit_silence(connected_socket, devices.SILENCE_S)
            weakref.finalize(self, connected_socket.close)
        self._lock = threading.Lock()
        self._file_count = 0
        self._modules: OrderedDict[str, tuple[int, Any]] = OrderedDict()
        self.tvm_device = session.device(device.kind, device.number)
        # Any function that computes nothing and is in every TVM.
        self._ping = session.get_function("runtime.NumThreads")

    @property
    def tvm_devices(self) -> list[Any]:
        """The devices of a virtual machine there: its own and, beside a GPU, the processor."""
        if self.device.kind == "cpu":
            return [self.tvm_device]
        return [self.tvm_device, self._session.cpu(0)]

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
        """The text that a function of the server's TVM returns; None where it has no such one."""
        try:
            return str(self._session.get_function(function)())
        except Exception as error:
            if self._is_lost(error):
                raise self._lost("it was asked for its target") from None
            return None

    def load(self, key: str, write: Callable[[Path], object]) -> Any:
        """The library that ``write`` makes, loaded there; a library of the same key is sent once.

        Its file is removed from the server as soon as it is loaded.
        """
        with self._lock:
            if key not in self._modules:
                self._modules[key] = self._send(write)
            # Used last, removed last.
            self._modules.move_to_end(key)
            # The least recently used libraries go first; the last one stays whatever its size.
            while len(self._modules) > 1 and self._loaded_bytes() > LOADED_BYTES:
                self._modules.popitem(last=False)
            return self._modules[key][1]

    @contextlib.contextmanager
    def guarded(self, activity: str) -> Iterator[None]:
        """Turn any error of the block into DeviceLost, or StageError where the server answers."""
        try:
            yield
        except StageError:
            raise
        except Exception as error:
            if self._is_lost(error):
                raise self._lost(activity) from error
            raise StageError(
                f"device '{self.device}' failed while {activity}: {line_of(error, last=True)}"
            ) from error

    def _loaded_bytes(self) -> int:
        return sum(size for size, _ in self._modules.values())

    def _send(self, write: Callable[[Path], object]) -> tuple[int, Any]:
        with tempfile.TemporaryDirectory(prefix="autosplit-rpc-") as folder:
            # A loader takes two libraries of one name for the same, even if the first is removed.
            self._file_count += 1
            file = Path(folder) / f"stage{self._file_count}.so"
            write(file)
            with self.guarded("a stage was loaded"):
                self._session.upload(str(file), target=file.name)
                try:
                    return file.stat().st_size, self._session.load_module(file.name)
                finally:
                    self._session.remove(file.name)

    def _is_lost(self, error: Exception) -> bool:
        self._cut_off(error)
        return not self.is_alive

    def _cut_off(self, error: Exception) -> None:
        """Close the connection after a silence: the late answer would be taken for the next one."""
        if self._socket is None or os.strerror(errno.EAGAIN) not in str(error):
            return
        self._is_silent = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _lost(self, activity: str) -> DeviceLost:
        silence = f" (no answer in {devices.SILENCE_S:.0f} s)" if self._is_silent else ""
        return DeviceLost(
            f"device '{self.device}' was lost while {activity}{silence}; start its server again"
        )


def _limit_silence(connected_socket: socket.socket, seconds: float) -> None:
    """End a send or receive that makes no progress, whoever calls it, with EAGAIN."""
    # A struct timeval, as the kernel reads it.
    whole_seconds = int(seconds)
    limit = struct.pack("ll", whole_seconds, int((seconds - whole_seconds) * 1e6))
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        connected_socket.setsockopt(socket.SOL_SOCKET, option, limit)
