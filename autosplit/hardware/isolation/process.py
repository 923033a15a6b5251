"""Work that may crash, hang or exhaust the memory, in a process group that leaves nothing behind.

The group is a guard and the worker it forked, in a session of their own. The worker answers jobs,
one JSON line each. The guard watches both ends: when the worker dies, or the asking process dies or
closes the worker, it kills all descendants. The asking process enforces the time limit. The two
exchange text only, never an object of a compiler.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

from autosplit import errors, phases
from autosplit.errors import AutosplitError, MachineError, StageError
from autosplit.hardware.isolation import worker
from autosplit.hardware.isolation.worker import OpenHandler

_GRACE_S = 5.0
_LONGEST_WAIT_S = 3600.0  # the system's poll takes milliseconds as a 31-bit number
_TAIL_BYTES = 1 << 16  # room for the stacks of many threads behind the line that names a crash
_OUT_OF_MEMORY = ("MemoryError", "bad_alloc", "out of memory", "Cannot allocate memory")
_ROOT = Path(errors.__file__).resolve().parents[1]
# The folder of the package comes last on the path, so that no file there hides another module.
_START = (
    "import sys; sys.path.append(sys.argv[1]); "
    f"from {worker.__name__} import main; main(sys.argv[2:])"
)


class Worker:
    """A process that answers jobs until it fails or is closed.

    ``open_handler`` is a top-level function of a module. The process calls it with ``setting`` and
    hands every job to the handler it returns. What the process prints goes to a temporary file,
    whose end is ``log_tail``. It inherits the open ``descriptors`` under the same numbers.
    This process reports the phases of the jobs as its own.
    """

    def __init__(
        self, open_handler: OpenHandler, setting: Mapping[str, Any], descriptors: Sequence[int] = ()
    ) -> None:
        self._log_start = 0
        self._asking_pid = os.getpid()
        address = _address(open_handler)
        self._log = _open_log()
        fcntl.fcntl(self._log, fcntl.F_SETFL, os.O_APPEND)  # the guard may truncate it
        alive_read, self._alive = os.pipe()
        answers, answers_write = os.pipe()
        self._answers = Connection(answers, writable=False)
        arguments = (str(_ROOT), str(alive_read), str(answers_write))
        try:
            self._process = subprocess.Popen(
                python_command("-c", _START, *arguments),
                stdin=subprocess.PIPE,
                stdout=self._log,
                stderr=self._log,
                env=child_environment(),
                start_new_session=True,  # a group that can be killed as a whole
                pass_fds=(alive_read, answers_write, *descriptors),
            )
        finally:
            os.close(alive_read)
            os.close(answers_write)
        self._send({"handler": address, "setting": setting})

    @property
    def is_alive(self) -> bool:
        """Whether the worker can answer another job."""
        return self._process.poll() is None

    def call(self, job: Mapping[str, Any], timeout_s: float) -> Any:
        """The answer to a job.

        Raises the AutosplitError of the handler. Raises StageError if the worker crashes, takes
        longer than ``timeout_s`` for a phase or ends without an answer; the worker is then killed.
        """
        phase, stages = str(job.get("kind", "working")), dict[str, object]()
        # The output of earlier jobs does not explain the end of this one.
        self._log_start = os.fstat(self._log.fileno()).st_size
        self._send(job)
        deadline = time.monotonic() + timeout_s
        while True:
            message = self._receive(deadline)
            if message is None:
                self.kill()
                raise StageError(f"timeout {timeout_s:g} s while {phase}")
            if "phase" in message:
                deadline = time.monotonic() + timeout_s
                phase, stages = str(message["phase"]), message["stages"] or stages
                phases.report(phase)
            elif "exit" in message:
                self.kill()
                status = int(message["exit"])
                raise StageError(cause_of_death(status, phase, self.log_tail(), stages))
            elif "error" in message:
                raise error_of(str(message["error"]), str(message["text"]))
            else:
                return message["answer"]

    def log_tail(self) -> str:
        """The last lines the worker printed in its last job."""
        if self._log.closed:
            return ""
        size = os.fstat(self._log.fileno()).st_size
        # The guard truncates a log that has grown too large.
        start = self._log_start if self._log_start <= size else 0
        length = min(size - start, _TAIL_BYTES)
        # The offset of the file is shared with the worker and must not change.
        return os.pread(self._log.fileno(), length, size - length).decode(errors="replace")

    def kill(self) -> None:
        """End the worker and all its descendants; its log can still be read. Idempotent."""
        if self._alive >= 0:
            os.close(self._alive)  # tells the guard to kill
            self._alive = -1
        if os.getpid() != self._asking_pid:
            return  # in a fork, which has closed its copy of the pipe and leaves the worker running
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE_S)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """Kill, and close the log. Idempotent."""
        self.kill()
        self._answers.close()
        self._log.close()
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # ``call`` reports how the worker died
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def _receive(self, deadline: float) -> dict[str, Any] | None:
        """The next message; None after the deadline."""
        while not self._answers.poll(min(max(0.0, deadline - time.monotonic()), _LONGEST_WAIT_S)):
            if time.monotonic() >= deadline:
                return None
        try:
            message: dict[str, Any] = json.loads(self._answers.recv_bytes())
        except (EOFError, OSError, ValueError):  # the guard was killed, or the message is cut off
            return {"exit": -int(signal.SIGKILL)}
        return message


def _address(function: OpenHandler) -> str:
    """The module and the name by which another process imports a function."""
    module, name = function.__module__, function.__qualname__
    if module == "__main__" or getattr(sys.modules.get(module), name, None) is not function:
        raise ValueError(f"'{module}.{name}' is not a top-level function of an importable module")
    return f"{module}:{name}"


def _open_log() -> IO[bytes]:
    try:
        # A file without a name, of which nothing is left however this process ends.
        return tempfile.TemporaryFile()
    except OSError as error:
        problem = f"no temporary file for a worker's log: {error.strerror}; free the disk"
        raise MachineError(problem) from error


def cause_of_death(status: int, phase: str, log: str, stages: Mapping[str, object]) -> str:
    """Why a worker died, judged by its exit status, the end of its log and its threads."""
    if any(word in log for word in _OUT_OF_MEMORY):
        return f"out of memory while {phase}"
    if status >= 0:
        return f"exit {status} without a result while {phase}"
    name = signal.Signals(-status).name
    if -status == signal.SIGKILL:
        return f"killed by SIGKILL while {phase}, perhaps out of memory"
    for thread, stage in stages.items():
        if f"Current thread {thread}" in log:  # as faulthandler writes it
            return f"crash {name} in stage {stage}"
    return f"crash {name} while {phase}"


def error_of(name: str, text: str) -> AutosplitError:
    """The error that a handler raised; a StageError if it is not one of the project."""
    kind = vars(errors).get(name)
    if isinstance(kind, type) and issubclass(kind, AutosplitError):
        return kind(text)
    return StageError(f"{name}: {text}")


def python_command(*arguments: str) -> tuple[str, ...]:
    """The command line of this interpreter with ``arguments``; see ``child_environment``."""
    return (sys.executable, "-P", *arguments)


def child_environment() -> dict[str, str]:
    """The environment for a child process; it reaches the interpreters that the child starts.

    Neither the current folder nor a relative entry of PYTHONPATH is searched for modules, so no
    file beside a study can pose as a module of the standard library.
    """
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    entries = environment.pop("PYTHONPATH", "").split(os.pathsep)
    absolute = [entry for entry in entries if os.path.isabs(entry)]
    if absolute:
        environment["PYTHONPATH"] = os.pathsep.join(absolute)
    return environment
