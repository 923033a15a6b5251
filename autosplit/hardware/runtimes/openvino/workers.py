"""The threads of OpenVINO, kept on the cores of the stages that use them.

OpenVINO takes a number of threads, not cores. A model with one thread runs in the calling thread.
One with more also uses workers of a pool that all models of the process share. A worker can serve
any model, so in one process all stages with several threads have the same cores, to which the
workers are pinned: such a stage has a claim. Stages on other cores have processes of their own.

OpenVINO's own pinning (ENABLE_CPU_PINNING) was tried: it picks the cores by itself, two models get
the same ones, and the calling thread is released to all cores after every inference. With
ENABLE_CPU_RESERVATION models get different cores, again not those one asks for, and a reserved core
serves no second model: compiling one fails.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

from autosplit.hardware.devices.device import Cores, can_pin
from autosplit.hardware.devices.system_files import system_text

_TASKS = Path("/proc/self/task")
_NAME = "openvino"
# Whether hwloc, by which OpenVINO binds threads, may take the topology for that of this machine.
_HWLOC_BINDS = "HWLOC_THISSYSTEM"
_lock = threading.Lock()
_initialising = threading.Lock()
_is_initialised = False
_thread_count = 0  # when the workers were last pinned


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


class Claim:
    """The right to run on some cores in this process, as long as something refers to it."""

    def __init__(self, cores: Cores) -> None:
        self.cores = cores
        self.has_workers = len(cores.numbers) > 1

    def pin(self) -> None:
        """Pin the workers to the cores; called once a model has run, which starts them."""
        global _thread_count
        with _lock:
            _thread_count = _count_threads()
            for thread in worker_threads() if can_pin() else ():
                with contextlib.suppress(ProcessLookupError):  # it has just ended
                    os.sched_setaffinity(thread, self.cores.numbers)

    def pin_new(self) -> None:
        """Pin workers that were started meanwhile: OpenVINO starts some only for more work.

        Without new threads this is one call of the system.
        """
        if _count_threads() != _thread_count:
            self.pin()


_claims: weakref.WeakSet[Claim] = weakref.WeakSet()


def claim(cores: Cores) -> Claim | None:
    """A claim to cores; None if it needs the workers while they are claimed for other cores."""
    new = Claim(cores)
    if new.has_workers:
        with _lock:
            if can_pin() and any({*c.cores.numbers} != {*cores.numbers} for c in _claims):
                return None
            _claims.add(new)
    return new


def worker_threads() -> list[int]:
    """The identifiers of OpenVINO's own threads, as the system has them."""
    python_threads = {thread.native_id for thread in threading.enumerate()}
    return [
        thread
        for thread in (int(task.name) for task in _TASKS.glob("*"))
        if thread not in python_threads and system_text(_TASKS / str(thread) / "comm") == _NAME
    ]


def _count_threads() -> int:
    # A folder has a link from each of its subfolders, one a thread here.
    return os.stat(_TASKS).st_nlink if _TASKS.is_dir() else 0
