"""The processes that run studies: who they are, what they hold, and what they leave when they die.

Optuna's heartbeats tell which workers are silent; processes of this host are seen directly.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from autosplit.printable import printable
from autosplit.study.record import RECORD, mapping, result_of
from autosplit.study.results import DEATHS_LIMIT, tally

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

# Seconds by which two readings of one start may differ: the kernel rounds the time of its boot.
START_TOLERANCE = 2.0
UNCLAIMED = 30.0  # seconds after which a running trial that names no worker counts as lost
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
    pid = worker.get("pid")
    if worker.get("host") != socket.gethostname() or not isinstance(pid, int):
        return False
    if isinstance(pid, bool) or not 0 < pid < 1 << 31:
        return False
    try:
        process = psutil.Process(pid)
        if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return True
        # A later process may have the same number.
        difference = float(str(worker.get("start"))) - _seconds_after_boot(process)
    except (psutil.NoSuchProcess, ValueError):
        return True
    except psutil.AccessDenied:
        return False
    return abs(difference) > START_TOLERANCE


def _seconds_after_boot(process: psutil.Process) -> float:
    """When a process started, counted from the boot: the clock of the host may be set meanwhile."""
    return process.create_time() - psutil.boot_time()


@dataclass(frozen=True)
class Retry:
    """Enqueues the candidate of a trial whose worker died or fell silent.

    Optuna calls it for silent workers. ``notify`` receives a line.
    """

    notify: Callable[[str], None]

    def __call__(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Enqueue the candidate, unless it has killed too many workers."""
        from optuna.storages import RetryHeartbeatStaleTrialCallback

        result = result_of(trial)
        name = f"process {result.worker.get('pid')} on {result.worker.get('host')}"
        reason = f"{printable(name)} died or was silent for longer than its lease"
        if result.key:
            # Its figures and its worker are not those of the next trial.
            trial.user_attrs = {RECORD: {"key": result.key}}
            RetryHeartbeatStaleTrialCallback(max_retry=DEATHS_LIMIT - 1)(study, trial)
        self.notify(f"trial {trial.number}: {reason}; its candidate is free again")


@dataclass
class LostTrials:
    """Finds the running trials that nobody measures any more; ``clock`` is monotonic."""

    study: optuna.Study
    retry: Retry
    clock: Callable[[], float] = time.monotonic
    _unclaimed: dict[int, float] = field(default_factory=dict, init=False)

    @property
    def is_watching(self) -> bool:
        """Whether a trial names no worker, and has not been watched for long enough."""
        return bool(self._unclaimed)

    def free(self) -> None:
        """Fail the trials of dead and of silent workers, and enqueue their candidates."""
        import optuna

        optuna.storages.fail_stale_trials(self.study)
        for trial in self._of_dead_workers():
            with contextlib.suppress(ValueError, optuna.exceptions.UpdateFinishedTrialError):
                self.study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
                self.retry(self.study, copy.deepcopy(trial))

    def _of_dead_workers(self) -> list[FrozenTrial]:
        running = tally(self.study.get_trials(deepcopy=False)).running
        workers = {trial.number: result_of(trial).worker for trial in running}
        # A worker records itself a moment after its trial starts, and may die in that moment.
        now, before = self.clock(), self._unclaimed
        unclaimed = [number for number, worker in workers.items() if not worker]
        self._unclaimed = {number: before.get(number, now) for number in unclaimed}
        lost = {n for n, since in self._unclaimed.items() if now - since >= UNCLAIMED}
        lost |= {number for number, worker in workers.items() if is_dead(worker)}
        return [trial for trial in running if trial.number in lost]


@dataclass(frozen=True)
class HostLock:
    """A lock among the processes of one user on one host; the system frees it if its holder dies.

    ``key`` tells locks apart. ``resource`` and ``holder`` are what it guards and who takes it, in
    the words of a message. ``notify`` receives a line when taking it lasts, once for each holder.
    Once the holder is stopped for ``stalled_after`` seconds, the caller goes on without the lock;
    so it does where no lock file can be made.
    """

    key: str
    resource: str
    holder: str
    notify: Callable[[str], None]
    stalled_after: float = float("inf")

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the lock while the body runs."""
        import filelock

        try:
            path = _folder() / hashlib.sha256(self.key.encode()).hexdigest()[:16]
            lock = filelock.FileLock(path.with_suffix(".lock"), mode=0o600)
            is_held = self._acquire(lock, path.with_suffix(".json"))
        except (OSError, NotImplementedError):
            yield
            return
        try:
            if is_held:
                since = time.strftime("%Y-%m-%d %H:%M:%S")
                text = f"held by process {os.getpid()} ({self.holder}) since {since}"
                document = json.dumps({"pid": os.getpid(), "text": text})
                with contextlib.suppress(OSError):  # the lock works without its description
                    path.with_suffix(".json").write_text(document, encoding="utf-8")
            yield
        finally:
            lock.release()

    def _acquire(self, lock: Any, description: Path) -> bool:
        """Whether the lock was taken; the attempts end when the holder is stopped for too long."""
        import filelock

        last_running, announced = time.monotonic(), set()
        while True:
            with contextlib.suppress(filelock.Timeout):
                # Whoever holds it measures, so it is disturbed as little as possible.
                lock.acquire(timeout=NOTICE_AFTER, poll_interval=POLL_INTERVAL)
                return True
            holder = _read_holder(description)
            pid = holder.get("pid")
            if not _is_stopped(pid):
                last_running = time.monotonic()
            if time.monotonic() - last_running >= self.stalled_after:
                return False
            if pid not in announced:
                announced.add(pid)
                text = printable(str(holder.get("text", "held by another process")))
                self.notify(f"waiting for {self.resource}, {text}")


def _is_stopped(pid: object) -> bool:
    """Whether a process is stopped by a signal or a debugger; false where that cannot be seen."""
    try:
        status = psutil.Process(pid).status() if isinstance(pid, int) else ""
    except (psutil.Error, ValueError, OverflowError):
        return False
    return status in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


def _folder() -> Path:
    """The folder of this user's locks. Raises OSError where it is not this user's alone."""
    folder = Path(tempfile.gettempdir()) / f"autosplit-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid() or folder.is_symlink():
        raise PermissionError(folder)
    return folder


def _read_holder(description: Path) -> dict[str, Any]:
    """What the holder wrote of itself; empty where it has not yet, or is writing it now."""
    try:
        return mapping(json.loads(description.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}
