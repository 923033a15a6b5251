"""Who measures a trial: a process, told apart from a later one with the same number by when it started."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import os
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


@functools.cache
def this_host() -> str:
    """The name under which this machine records its workers."""
    return socket.gethostname()


def this_worker() -> dict[str, Any]:
    """This process as recorded on a trial: ``host``, ``pid``, ``start``."""
    return {"host": this_host(), "pid": os.getpid(), "start": _started(os.getpid())}


def is_dead(worker: Mapping[str, Any] | None) -> bool:
    """Whether a recorded worker certainly runs no more; false for other hosts, whose processes cannot be seen."""
    if not isinstance(worker, Mapping) or worker.get("host") != this_host():
        return False
    pid = worker.get("pid")
    if not isinstance(pid, int) or isinstance(pid, bool) or not 0 < pid < 1 << 31:
        return False
    started = _started(pid)
    return started is None or (worker.get("start") not in ("", started))


def _started(pid: int) -> str | None:
    """When a process started: machine start and clock ticks since; "" where that is not told, None where it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except ProcessLookupError:
        return None
    except OSError:
        return "" if _exists(pid) else None
    return None if fields[0] in (b"Z", b"X") else f"{boot[:8]}-{int(fields[19])}"


def _exists(pid: int) -> bool:
    if os.name != "posix":  # there, signal 0 is not a question
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextlib.contextmanager
def one_at_a_time(
    what: str, patience: float | None = None, stopped: float | None = None
) -> Iterator[None]:
    """A lock among this user's processes on this host, freed by the system when its holder dies.

    Where it cannot be had the caller goes on without one: no fcntl, no folder to write to, not free for ``patience`` seconds,
    or its holder's process was stopped for ``stopped`` seconds.
    """
    try:
        import fcntl

        folder = Path(tempfile.gettempdir()) / f"autosplit-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_uid != os.getuid():
            raise PermissionError(folder)
        name = hashlib.sha256(what.encode()).hexdigest()[:16]
        handle = os.open(
            folder / f"{name}.lock", os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
    except (ImportError, OSError):
        yield
        return
    try:
        if patience is None and stopped is None:
            fcntl.flock(handle, fcntl.LOCK_EX)
            held = True
        else:
            held = _lock_within(handle, patience or math.inf, stopped or math.inf)
        if held:
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(handle)


def _lock_within(handle: int, patience: float, stopped: float) -> bool:
    """Whether the lock is held now. The system has no lock with a time limit, so it is asked again and again."""
    import fcntl

    seen = begun = time.monotonic()  # when the holder was last seen to run
    while (now := time.monotonic()) < begun + patience and now < seen + stopped:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if not _is_stopped(os.pread(handle, 20, 0)):
            seen = now
        time.sleep(0.02)
    return False


def _is_stopped(pid: bytes) -> bool:
    """Whether a process is stopped, by a signal or a debugger; false where that is not told."""
    if not pid.isdigit():
        return False
    try:
        return Path(f"/proc/{int(pid)}/stat").read_bytes().rpartition(b")")[2].split()[0] in (
            b"T",
            b"t",
        )
    except OSError:
        return False
