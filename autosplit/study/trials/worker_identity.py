"""The process that measures a trial: host, process number, and when it started."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any

import psutil

# Seconds by which two readings of one start may differ: the kernel rounds the time of its boot.
START_TOLERANCE = 2.0


def this_worker() -> dict[str, Any]:
    """This process as recorded on a trial: ``host``, ``pid``, ``start``."""
    start = _seconds_after_boot(psutil.Process())
    return {"host": socket.gethostname(), "pid": os.getpid(), "start": f"{start:.2f}"}


def is_dead(worker: Mapping[str, Any] | None) -> bool:
    """Whether a recorded worker certainly runs no more.

    False for workers of other hosts, whose processes cannot be seen from here.
    """
    if not isinstance(worker, Mapping) or worker.get("host") != socket.gethostname():
        return False
    pid = worker.get("pid")
    if not isinstance(pid, int) or isinstance(pid, bool) or not 0 < pid < 1 << 31:
        return False
    try:
        process = psutil.Process(pid)
        if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return True
        return not _is_start_of(worker.get("start"), process)
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal or a debugger; false where that cannot be seen."""
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    except psutil.Error:
        return False


def _is_start_of(start: object, process: psutil.Process) -> bool:
    """Whether a recorded start is that of a process; a later process may have the same number."""
    if start == "":
        return True
    try:
        difference = float(str(start)) - _seconds_after_boot(process)
    except ValueError:  # recorded by another version: a process that has ended since
        return False
    return abs(difference) <= START_TOLERANCE


def _seconds_after_boot(process: psutil.Process) -> float:
    """When a process started, counted from the boot: the clock of the host may be set meanwhile."""
    return process.create_time() - psutil.boot_time()
