"""The other end of ``isolation``: ``python -m autosplit.hardware.worker ALIVE_FD ANSWERS_FD``.

The process forks before it loads anything: the parent is the guard, the child the worker.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from typing import IO, Any

from autosplit.errors import line_of

_LOG_LIMIT = 64 << 20
_POLL_MS = 200
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36

Tell = Callable[..., None]
"""``tell(phase, stages=None)``: what the worker is at, and which thread (by hex ident) runs which stage."""


def main(arguments: list[str]) -> int:
    """Fork; guard in the parent, work in the child."""
    alive, answers = map(int, arguments)
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is for the process that asked, which then lets go
    child = os.fork()
    if child == 0:
        os.close(alive)
        _work(os.fdopen(answers, "wb", buffering=0))
        return 0
    return _guard(child, alive, answers)


def _guard(child: int, alive: int, answers: int) -> int:
    """Wait until the worker dies or the asking process lets go, then kill whatever is left."""
    _prctl(
        _PR_SET_CHILD_SUBREAPER, 1
    )  # a grandchild whose parent died becomes ours, whatever session it is in
    poll = select.poll()
    poll.register(alive, select.POLLIN)
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            with contextlib.suppress(OSError):
                os.write(answers, json.dumps({"exit": code}).encode() + b"\n")
            break
        if poll.poll(_POLL_MS):
            break
        with contextlib.suppress(OSError):
            if os.fstat(1).st_size > _LOG_LIMIT:
                os.ftruncate(1, 0)
    _kill_descendants()
    os.killpg(0, signal.SIGKILL)
    return 0


def _kill_descendants() -> None:
    """Kill children until there are none: those of a killed one become ours."""
    for _ in range(1000):
        children = _children()
        if not children:
            return
        for pid in children:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)


def _children() -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{task}/children", encoding="ascii") as stream:
                found += map(int, stream.read().split())
    return found


def _work(answers: IO[bytes]) -> None:
    import faulthandler

    from autosplit.hardware.isolation.memory import give_back

    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    faulthandler.enable(sys.stderr)
    lock = threading.Lock()

    def send(message: Mapping[str, Any]) -> None:
        with lock:
            answers.write(json.dumps(message).encode() + b"\n")

    def tell(phase: str, stages: Mapping[str, int] | None = None) -> None:
        send({"phase": phase, "stages": dict(stages or {})})

    request = json.loads(sys.stdin.readline())
    _limit(request["memory"])
    handler: Callable[[Mapping[str, Any]], Any] | None = None
    for line in sys.stdin:
        job = json.loads(line)
        try:
            if handler is None:
                module, _, name = request["handler"].partition(":")
                handler = getattr(importlib.import_module(module), name)(request["setting"], tell)
            assert handler is not None
            send({"answer": handler(job)})
        except MemoryError:
            with contextlib.suppress(OSError):
                print("MemoryError", file=sys.stderr, flush=True)
            os._exit(1)
        except Exception as error:
            import traceback

            with contextlib.suppress(OSError):  # the log's disk may be full
                traceback.print_exc()
            send({"error": type(error).__name__, "text": line_of(error, last=True)})
        give_back()


def _limit(memory: int | None) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def _prctl(option: int, value: int) -> None:
    if sys.platform != "linux":
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
