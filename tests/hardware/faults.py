"""A handler for workers that fail in every way a build or a run can fail."""

from __future__ import annotations

import ctypes
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from autosplit import phases
from autosplit.hardware.isolation.worker import Handler


def open_faulty(setting: Mapping[str, Any]) -> Handler:
    if "memory" in setting:
        resource.setrlimit(resource.RLIMIT_AS, (setting["memory"], setting["memory"]))

    def answer(job: Mapping[str, Any]) -> Any:
        phases.report(job["phase"])
        if job["kind"] == "in stage":
            return in_stage(job["stage"])
        return FAULTS[job["kind"]](job)

    return answer


def in_stage(stage: int) -> None:
    """Crash in a thread that was reported to run a stage."""
    ready = threading.Event()
    thread = threading.Thread(target=lambda: (ready.wait(), segfault({})))
    thread.start()
    phases.report("running", {f"0x{thread.ident:016x}": stage})
    ready.set()
    thread.join()


def segfault(job: Mapping[str, Any]) -> None:
    ctypes.string_at(0)


def out_of_memory(job: Mapping[str, Any]) -> None:
    blocks = [b"x" * (1 << 28) for _ in range(1000)]
    print(len(blocks))


def hold_the_gil(job: Mapping[str, Any]) -> None:
    re.match(r"(a+)+$", "a" * 64 + "b")


def flood(job: Mapping[str, Any]) -> str:
    for _ in range(30):
        os.write(1, b"x" * (1 << 20))
    return "done"


def ignore_sigterm(job: Mapping[str, Any]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)


def grandchild(job: Mapping[str, Any]) -> int:
    """A sleeper in a session of its own, which no signal to our group reaches."""
    return subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
    ).pid


def import_modules(job: Mapping[str, Any]) -> str:
    """Import a module of the standard library and one of another package."""
    import queue

    import psutil

    return f"{queue.__name__} {psutil.__name__}"


def fail(job: Mapping[str, Any]) -> None:
    raise ValueError("the handler said no")


def work_in_phases(job: Mapping[str, Any]) -> str:
    for number in range(job["count"]):
        phases.report(f"phase {number}")
        time.sleep(job["seconds"])
    return "done"


FAULTS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "echo": lambda job: job["value"],
    "segfault": segfault,
    "abort": lambda job: os.abort(),
    "exit": lambda job: os._exit(7),
    "sleep": lambda job: time.sleep(600),
    "gil": hold_the_gil,
    "stop": lambda job: os.kill(os.getpid(), signal.SIGSTOP),
    "memory": out_of_memory,
    "flood": flood,
    "sigterm": ignore_sigterm,
    "grandchild": grandchild,
    "fail": fail,
    "phases": work_in_phases,
    "import": import_modules,
    "pid": lambda job: os.getpid(),
}
