"""The processes that run studies: their identity, their locks, and the trials of dead ones.

Optuna's heartbeats show which workers are silent; processes of this host are checked directly.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import filelock
import optuna
import psutil
from optuna.storages import RetryHeartbeatStaleTrialCallback
from optuna.trial import FrozenTrial

from autosplit.hardware.devices.system_files import system_text
from autosplit.printable import printable
from autosplit.study.record import RECORD, record_of
from autosplit.study.results import DEATHS_LIMIT, deaths, tally

# Seconds by which two readings of a start time may differ: the kernel rounds its boot time.
START_TOLERANCE = 2.0
NOTICE_AFTER = 2.0  # seconds of waiting for a lock after which a process reports who holds it
POLL_INTERVAL = 0.1  # seconds between two attempts to take a lock


def this_worker() -> dict[str, Any]:
    """This process as recorded on a trial: ``host``, ``boot``, ``pid``, ``start``."""
    start = _seconds_after_boot(psutil.Process())
    return {**_machine(), "pid": os.getpid(), "start": f"{start:.2f}"}


def _machine() -> dict[str, str]:
    """The host name; on Linux also what tells apart machines and containers of one name."""
    boot = system_text(Path("/proc/sys/kernel/random/boot_id"))
    with contextlib.suppress(OSError):
        boot += f" {os.readlink('/proc/self/ns/pid')}"
    return {"host": socket.gethostname(), "boot": boot}


def is_dead(worker: Mapping[str, Any]) -> bool:
    """Whether a recorded worker is certainly no longer running.

    False for workers of other hosts, whose processes cannot be seen from here.
    """
    if any(worker.get(key) != value for key, value in _machine().items()):
        return False
    try:
        process = psutil.Process(worker.get("pid") or 0)
        if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return True
        # A later process may have the same number.
        difference = float(str(worker.get("start"))) - _seconds_after_boot(process)
    except psutil.AccessDenied:
        return False
    except (psutil.NoSuchProcess, TypeError, ValueError, OverflowError):
        return True  # a database may hold anything
    return abs(difference) > START_TOLERANCE


def _seconds_after_boot(process: psutil.Process) -> float:
    """Seconds from boot to the start of a process, which do not change when the clock is set."""
    return process.create_time() - psutil.boot_time()


def free_candidate(notify: Callable[[str], None], study: optuna.Study, trial: FrozenTrial) -> None:
    """Enqueue the candidate of a lost trial again, unless the candidate has killed many workers.

    Optuna calls this for trials of silent workers. ``notify`` receives a line.
    """
    result = record_of(trial)
    name = f"process {result.worker.get('pid')} on {result.worker.get('host')}"
    reason = f"{printable(name)} died or was silent for longer than its lease"
    outcome = "is free again" if deaths(trial) < DEATHS_LIMIT else "has failed too often"
    if result.key:
        # The next trial starts without the old figures. It names this process as its worker, so
        # that others notice if this process dies before it measures.
        trial.user_attrs = {RECORD: {"key": result.key, "worker": this_worker()}}
        RetryHeartbeatStaleTrialCallback(max_retry=DEATHS_LIMIT - 1)(study, trial)
    notify(f"trial {trial.number}: {reason}; its candidate {outcome}")


def free_lost_trials(study: optuna.Study, notify: Callable[[str], None]) -> list[FrozenTrial]:
    """Fail the trials of dead and of silent workers, and enqueue their candidates.

    Returns all trials of the study as they are afterwards.
    """
    optuna.storages.fail_stale_trials(study)
    trials = study.get_trials(deepcopy=False)
    # A trial names its worker from its first moment.
    lost = [trial for trial in tally(trials).running if is_dead(record_of(trial).worker)]
    for trial in lost:
        with contextlib.suppress(ValueError, optuna.exceptions.UpdateFinishedTrialError):
            study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
            free_candidate(notify, study, copy.deepcopy(trial))
    return study.get_trials(deepcopy=False) if lost else trials


@contextlib.contextmanager
def host_lock(
    key: str, resource: str, holder: str, notify: Callable[[str], None]
) -> Iterator[None]:
    """Hold a lock among the processes of one user on one host; the system frees it if they die.

    ``key`` identifies the lock. ``resource`` is what it guards and ``holder`` who takes it, worded
    for messages. ``notify`` receives a line if the wait is long. Where no lock file can be made,
    nothing is locked.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError, NotImplementedError):
            path = _folder() / hashlib.sha256(key.encode()).hexdigest()[:16]
            lock = filelock.FileLock(path.with_suffix(".lock"), mode=0o600)
            description = path.with_suffix(".txt")
            # The holder may be measuring, so waiting must disturb it as little as possible.
            try:
                lock.acquire(timeout=NOTICE_AFTER, poll_interval=POLL_INTERVAL)
            except filelock.Timeout:
                text = "another process"
                with contextlib.suppress(OSError, ValueError):  # the holder may be writing it
                    text = description.read_text(encoding="utf-8") or text
                notify(f"waiting for {resource}, held by {printable(text)}")
                lock.acquire(poll_interval=POLL_INTERVAL)
            stack.callback(lock.release)
            now = time.strftime("%Y-%m-%d %H:%M:%S")
            # The lock works without this text, so a failure to write it is ignored.
            description.write_text(f"process {os.getpid()} ({holder}) since {now}", "utf-8")
        yield


def _folder() -> Path:
    """The folder of this user's locks. Raises OSError where it is not this user's alone."""
    folder = Path(tempfile.gettempdir()) / f"autosplit-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid() or folder.is_symlink():
        raise PermissionError(folder)
    return folder
