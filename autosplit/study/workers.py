"""The processes that run studies: who they are, what they hold, and what they leave when they die.

Optuna's heartbeats tell which workers are silent; processes of this host are seen directly.
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

from autosplit.printable import printable
from autosplit.study.record import RECORD, record_of
from autosplit.study.results import DEATHS_LIMIT, tally

# Seconds by which two readings of one start may differ: the kernel rounds the time of its boot.
START_TOLERANCE = 2.0
NOTICE_AFTER = 2.0  # seconds after which a process that waits for a lock looks who holds it
POLL_INTERVAL = 0.1  # seconds between two attempts to take a lock


def this_worker() -> dict[str, Any]:
    """This process as recorded on a trial: ``host``, ``pid``, ``start``."""
    start = _seconds_after_boot(psutil.Process())
    return {"host": socket.gethostname(), "pid": os.getpid(), "start": f"{start:.2f}"}


def is_dead(worker: Mapping[str, Any]) -> bool:
    """Whether a recorded worker certainly runs no more.

    False for workers of other hosts, whose processes cannot be seen from here.
    """
    if worker.get("host") != socket.gethostname():
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
    """When a process started, counted from the boot: the clock of the host may be set meanwhile."""
    return process.create_time() - psutil.boot_time()


def free_candidate(notify: Callable[[str], None], study: optuna.Study, trial: FrozenTrial) -> None:
    """Enqueue the candidate of a trial whose worker died or fell silent, unless it killed many.

    Optuna calls it for silent workers. ``notify`` receives a line.
    """
    result = record_of(trial)
    name = f"process {result.worker.get('pid')} on {result.worker.get('host')}"
    reason = f"{printable(name)} died or was silent for longer than its lease"
    if result.key:
        # Its figures and its worker are not those of the next trial, which has a name from the
        # start, so that others see when this process dies before it measures.
        trial.user_attrs = {RECORD: {"key": result.key, "worker": this_worker()}}
        RetryHeartbeatStaleTrialCallback(max_retry=DEATHS_LIMIT - 1)(study, trial)
    notify(f"trial {trial.number}: {reason}; its candidate is free again")


def free_lost_trials(study: optuna.Study, notify: Callable[[str], None]) -> list[FrozenTrial]:
    """Fail the trials of dead and of silent workers, and enqueue their candidates.

    Returns the trials as they are then.
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
    """Hold a lock among the processes of one user on one host, which the system frees if they die.

    ``key`` tells locks apart. ``resource`` and ``holder`` are what it guards and who takes it, in
    the words of a message. ``notify`` receives a line when taking it lasts. Where no lock file can
    be made, nothing is locked.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError, NotImplementedError):
            path = _folder() / hashlib.sha256(key.encode()).hexdigest()[:16]
            lock = filelock.FileLock(path.with_suffix(".lock"), mode=0o600)
            description = path.with_suffix(".txt")
            # Whoever holds it measures, so it is disturbed as little as possible.
            try:
                lock.acquire(timeout=NOTICE_AFTER, poll_interval=POLL_INTERVAL)
            except filelock.Timeout:
                text = "another process"
                with contextlib.suppress(OSError, ValueError):  # it may write at this moment
                    text = description.read_text(encoding="utf-8") or text
                notify(f"waiting for {resource}, held by {printable(text)}")
                lock.acquire(poll_interval=POLL_INTERVAL)
            stack.callback(lock.release)
            now = time.strftime("%Y-%m-%d %H:%M:%S")
            # The lock works without it, so a failure matters as little as that of the lock.
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
