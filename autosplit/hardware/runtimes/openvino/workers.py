"""The threads of OpenVINO, kept on the cores of the stages that use them.

OpenVINO takes a number of threads, not cores. A model with one thread runs in the calling thread.
One with more also uses workers of a pool that all models of the process share. A worker can serve
any model, so a stage with several threads runs in this process only where it has all cores of the
process. One on some of them has a process of its own.

OpenVINO's own pinning (ENABLE_CPU_PINNING) was tried: it picks the cores by itself, two models get
the same ones, and the calling thread is released to all cores after every inference. With
ENABLE_CPU_RESERVATION models get different cores, again not those one asks for, and a reserved core
serves no second model: compiling one fails.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from autosplit.hardware.devices.device import Cores, can_pin
from autosplit.hardware.devices.system_files import system_text

_TASKS = Path("/proc/self/task")
_NAME = "openvino"
# Whether hwloc, by which OpenVINO binds threads, may take the topology for that of this machine.
_HWLOC_BINDS = "HWLOC_THISSYSTEM"
_initialising = threading.Lock()
_is_initialised = False


@contextlib.contextmanager
def without_binding() -> Iterator[None]:
    """Inside, OpenVINO is first used in the process.

    In every inference OpenVINO's scheduler binds its threads, the calling one included, to all
    cores of the process, even with pinning disabled. It does so by hwloc, which is initialised once
    and does not bind if it takes the topology for that of another machine.
    """
    global _is_initialised
    if _is_initialised:
        yield
        return
    with _initialising:
        before = os.environ.get(_HWLOC_BINDS)
        os.environ[_HWLOC_BINDS] = "0"
        try:
            yield
            _is_initialised = True
        finally:
            del os.environ[_HWLOC_BINDS]
            if before is not None:
                os.environ[_HWLOC_BINDS] = before


def name_thread() -> None:
    """Name the calling thread after OpenVINO; on Linux the threads that it starts inherit that."""
    if _TASKS.is_dir():
        (_TASKS / str(threading.get_native_id()) / "comm").write_text(_NAME, encoding="ascii")


def pin(cores: Cores) -> None:
    """Pin the workers to some cores; called once a model has run, which starts them."""
    for thread in worker_threads() if can_pin() else ():
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.sched_setaffinity(thread, cores.numbers)


def worker_threads() -> list[int]:
    """The identifiers of OpenVINO's own threads, as the system has them."""
    python_threads = {thread.native_id for thread in threading.enumerate()}
    return [
        thread
        for thread in (int(task.name) for task in _TASKS.glob("*"))
        if thread not in python_threads and system_text(_TASKS / str(thread) / "comm") == _NAME
    ]
