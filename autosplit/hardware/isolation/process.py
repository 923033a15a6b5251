"""Work that may crash, hang or eat the memory, done in a process of its own that nothing survives.

The process is a guard and the worker it forked, in a session of their own. The worker answers jobs, one JSON line each; the
guard watches over both ends: when the worker dies, or the process that asked dies or lets go, it kills all that descends
from it. The asking process holds the deadline. Only text crosses, no object of a compiler.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from autosplit import errors
from autosplit.errors import AutosplitError, MachineError, StageError

_GRACE_S = 5.0
_TAIL_BYTES = 4096


class Worker:
    """A process that runs ``handler``, a ``module:function`` of ours, and answers jobs until it fails or is closed.

    ``setting`` is what the handler is called with; ``memory`` limits the worker's address space in bytes. What the process
    prints goes to a log, whose end is ``log_tail``.
    """

    def __init__(self, handler: str, setting: Mapping[str, Any], memory: int | None = None) -> None:
        self.phase = "starting"
        self.stages: dict[str, int] = {}
        self._buffer = b""
        try:
            # A file without a name: nothing is left of it, however this process ends.
            self._log = tempfile.TemporaryFile()  # noqa: SIM115
        except OSError as error:
            raise MachineError(
                f"no temporary file for a worker's log: {error.strerror}; free the disk"
            ) from error
        alive_read, self._alive = os.pipe()
        self._answers, answers_write = os.pipe()
        request = {"handler": handler, "setting": setting, "memory": memory}
        try:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "autosplit.hardware.isolation.worker",
                    str(alive_read),
                    str(answers_write),
                ],
                stdin=subprocess.PIPE,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
                pass_fds=(alive_read, answers_write),
            )
        finally:
            for end in (alive_read, answers_write):
                os.close(end)
        self._send(request)

    @property
    def pid(self) -> int:
        """The guard's process, which leads the group."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the worker can still be asked."""
        return self._process.poll() is None

    def call(self, job: Mapping[str, Any], timeout_s: float) -> Any:
        """The answer to a job.

        Raises the AutosplitError the handler raised; StageError, with the reason, where the worker crashed, hung for longer
        than ``timeout_s`` or answered nothing. After the latter the worker is gone.
        """
        self.phase = str(job.get("kind", "working"))
        self._send(job)
        deadline = time.monotonic() + timeout_s
        while True:
            message = self._receive(deadline)
            if message is None:
                self.close()
                raise StageError(f"timeout {timeout_s:g} s while {self.phase}")
            if "phase" in message:
                self.phase = str(message["phase"])
                self.stages = message.get("stages") or self.stages
            elif "exit" in message:
                self.close()
                raise StageError(self._death(int(message["exit"])))
            elif "error" in message:
                raise _error(str(message["error"]), str(message["text"]))
            else:
                return message["answer"]

    def log_tail(self) -> str:
        """The last lines the worker printed."""
        # Reading at a position leaves alone the one that the worker writes at, which is shared.
        with contextlib.suppress(OSError, ValueError):
            log = self._log.fileno()
            start = max(0, os.fstat(log).st_size - _TAIL_BYTES)
            return os.pread(log, _TAIL_BYTES, start).decode(errors="replace")
        return ""

    def close(self) -> None:
        """End the worker and all that descends from it; can be called twice."""
        if self._alive >= 0:
            os.close(self._alive)  # the guard sees that, and kills
            self._alive = -1
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE_S)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def discard(self) -> None:
        """Close, and remove the log."""
        self.close()
        if self._process.stdin:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        if self._answers >= 0:
            os.close(self._answers)
            self._answers = -1
        self._log.close()

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died; `call` says how
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def _receive(self, deadline: float) -> dict[str, Any] | None:
        """The next message; None once the deadline has passed."""
        while b"\n" not in self._buffer:
            ready, _, _ = select.select(
                [self._answers], [], [], max(0.0, deadline - time.monotonic())
            )
            if not ready:
                return None
            piece = os.read(self._answers, 1 << 16)
            if not piece:
                return {"exit": -int(signal.SIGKILL)}
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def _death(self, status: int) -> str:
        """Why the worker died, as far as its status and its log tell."""
        tail = self.log_tail()
        if any(
            word in tail
            for word in ("MemoryError", "bad_alloc", "out of memory", "Cannot allocate memory")
        ):
            return f"out of memory while {self.phase}"
        if status >= 0:
            return f"exit {status} without a result while {self.phase}"
        name = signal.Signals(-status).name
        if -status == signal.SIGKILL:
            return f"killed by SIGKILL while {self.phase}, perhaps out of memory"
        where = next(
            (
                f"in stage {s}"
                for ident, s in self.stages.items()
                if f"Current thread {ident}" in tail
            ),
            None,
        )
        return f"crash {name} {where or f'while {self.phase}'}"


def _error(name: str, text: str) -> AutosplitError:
    kind = getattr(errors, name, None)
    is_ours = isinstance(kind, type) and issubclass(kind, AutosplitError)
    return kind(text) if is_ours and kind else StageError(f"{name}: {text}")
