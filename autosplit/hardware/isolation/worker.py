"""The process that ``Worker`` starts, with the descriptors ALIVE and ANSWERS as arguments.

It forks before it imports anything large: the parent is the guard, the child answers the jobs.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pkgutil
import select
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

from autosplit import errors, phases
from autosplit.errors import line_of
from autosplit.hardware.devices.system_files import processes

_LOG_LIMIT = 64 << 20
_POLL_MS = 200
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36

Handler = Callable[[Mapping[str, Any]], Any]
OpenHandler = Callable[[Mapping[str, Any]], Handler]


def main(arguments: list[str]) -> None:
    """Fork; guard in the parent, work in the child."""
    alive, answers = map(int, arguments)
    # Ctrl-C is for the asking process, which then closes the worker.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    child = os.fork()
    if child == 0:
        os.close(alive)
        _work(Connection(answers, readable=False))
    else:
        _guard(child, alive, Connection(answers, readable=False))


def release_memory() -> None:
    """Return freed memory to the system.

    The C library of Linux keeps it, and lowering a model frees twice the size of its weights.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _guard(child: int, alive: int, answers: Connection) -> None:
    """Wait until the worker dies or the asking process closes ``alive``, then kill what is left."""
    # A process whose parent died becomes a child of the guard, whatever session it is in.
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    poll = select.poll()
    poll.register(alive, select.POLLIN)
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            with contextlib.suppress(OSError):
                answers.send_bytes(json.dumps({"exit": code}).encode())
            break
        if poll.poll(_POLL_MS):
            break
        # A program that floods its log must not fill the disk.
        with contextlib.suppress(OSError):
            if os.fstat(1).st_size > _LOG_LIMIT:
                os.ftruncate(1, 0)
    _kill_descendants()
    os.killpg(0, signal.SIGKILL)


def _kill_descendants() -> None:
    """Kill children until none is left; the children of a killed one become the guard's."""
    guard = os.getpid()
    while children := [pid for pid, usage in processes().items() if usage.parent == guard]:
        for pid in children:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)


def _work(answers: Connection) -> None:
    """Answer the jobs that come on standard input, one line each."""
    import faulthandler
    import resource

    # If the guard itself is killed, the system kills this process.
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    faulthandler.enable(sys.stderr)
    # A crash is expected here; a core file of several gigabytes is not.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    lock = threading.Lock()

    def send(message: Mapping[str, Any]) -> None:
        with lock:
            answers.send_bytes(json.dumps(message).encode())

    def report(phase: str, stages: Mapping[str, object]) -> None:
        if stages:
            # When TVM was imported, it installed its own handler, which names no thread.
            faulthandler.disable()
            faulthandler.enable(sys.stderr)
        send({"phase": phase, "stages": dict(stages)})

    phases.listen(report)
    request = json.loads(sys.stdin.readline())
    handler: Any = None
    for line in sys.stdin:
        try:
            if handler is None:
                handler = pkgutil.resolve_name(request["handler"])(request["setting"])
            send({"answer": handler(json.loads(line))})
        except MemoryError:
            with contextlib.suppress(OSError):
                print("MemoryError", file=sys.stderr, flush=True)
            os._exit(1)
        except Exception as error:
            import traceback

            with contextlib.suppress(OSError):  # the disk of the log may be full
                traceback.print_exc()
            kinds = (k.__name__ for k in type(error).__mro__ if k.__module__ == errors.__name__)
            name = next(kinds, type(error).__name__)
            send({"error": name, "text": line_of(error, last=True)})


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):  # other systems than Linux have none
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
