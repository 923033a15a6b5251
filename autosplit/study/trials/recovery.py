"""Recovery: running trials whose worker died, fell silent, or ends before it has a result."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from autosplit.printable import printable
from autosplit.study.persistence.optuna_internals import record_heartbeat, write_trial
from autosplit.study.trials.heartbeat import SilenceWatch
from autosplit.study.trials.progress import Progress
from autosplit.study.trials.results import tally
from autosplit.study.trials.worker_identity import is_dead, this_worker
from autosplit.study.trials.writer import TrialWriter

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

UNCLAIMED = 60.0  # seconds after which a running trial that names no worker counts as lost
DEATHS_LIMIT = 5  # processes that may die while measuring a split before it counts as failed


@dataclass
class Recovery:
    """Finds lost trials and frees or measures their splits.

    ``is_locked``: whoever starts trials holds a lock, which the caller holds while it looks.
    ``clock`` is monotonic: the wall clocks of hosts differ and may be set.
    """

    study: optuna.Study
    progress: Progress
    writer: TrialWriter
    is_locked: bool
    lease: float
    clock: Callable[[], float] = time.monotonic
    _watch: SilenceWatch = field(init=False)
    _first_seen_unclaimed: dict[int, float] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._watch = SilenceWatch(self.study, self.lease, self.clock)

    @property
    def is_watching(self) -> bool:
        """Whether a trial seems lost that has not been watched for long enough."""
        return bool(self._watch.suspects)

    def free_silent_trials(self) -> bool:
        """Fail the trials whose workers are silent for longer than the lease; their splits are free.

        Returns whether there were any.
        """
        silent = self._watch.silent_trials()
        trials = self.study.get_trials(deepcopy=False) if silent else ()
        freed = [t for t in tally(trials).running if t.number in silent]
        for trial in freed:
            worker = trial.user_attrs.get("worker")
            name = "its worker"
            if isinstance(worker, dict):
                name = printable(f"process {worker.get('pid')} on {worker.get('host')}")
            reason = f"{name} was silent for longer than its lease"
            self.writer.fail(trial, reason, lost=True)
            self.progress.note(f"trial {trial.number}: {reason}; its split is free again")
        return bool(freed)

    def stale_trials(self, trials: Sequence[FrozenTrial]) -> Iterator[FrozenTrial]:
        """Running trials whose worker has certainly ended."""
        for trial in tally(trials).running:
            worker = trial.user_attrs.get("worker")
            if is_dead(worker) or (worker is None and self._is_unclaimed(trial)):
                yield trial

    def _is_unclaimed(self, trial: FrozenTrial) -> bool:
        """Whether the worker of a trial died before it recorded itself, a moment after the start.

        Under the lock no other worker can be in that moment. Without one the trial has to look old
        by the wall clock, and to have been seen for some seconds: wall clocks differ.
        """
        if self.is_locked:
            return True
        now = self.clock()
        watched = now - self._first_seen_unclaimed.setdefault(trial.number, now)
        if watched >= UNCLAIMED or trial.datetime_start is None:
            return True
        age = (datetime.datetime.now() - trial.datetime_start).total_seconds()
        return age >= UNCLAIMED and watched >= WATCHED

    def take_over(self, trial: FrozenTrial) -> bool:
        """Make a dead worker's trial this process's own, to measure its split again.

        False for a split that killed too many workers: its trial fails instead.
        """
        deaths = int(trial.user_attrs.get("deaths", 0)) + 1
        if deaths >= DEATHS_LIMIT:
            self.writer.fail(trial, f"the process died {deaths} times while measuring this split")
            return False
        record_heartbeat(self.study, trial)
        write_trial(self.study, trial, {"worker": this_worker(), "deaths": deaths})
        self.progress.note(f"trial {trial.number}: its worker died; measuring it again")
        return True

    def release(self, trials: Sequence[FrozenTrial], reason: str) -> None:
        """Fail the trials that this process measures; their splits are free again."""
        for trial in tally(trials).running:
            if trial.user_attrs.get("worker") == this_worker():
                self.writer.fail(trial, reason, lost=True)
