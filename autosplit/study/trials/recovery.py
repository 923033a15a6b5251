"""Recovery: running trials whose worker died, fell silent, or ends before it has a result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from autosplit.printable import printable
from autosplit.study.persistence.optuna_internals import record_heartbeat, write_trial
from autosplit.study.progress import Progress
from autosplit.study.trials.heartbeat import SilenceWatch
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
    _unclaimed: dict[int, float] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._watch = SilenceWatch(self.study, self.lease, self.clock)

    @property
    def is_watching(self) -> bool:
        """Whether a trial seems lost that has not been watched for long enough."""
        return bool(self._watch.suspects or self._unclaimed)

    def free_silent_trials(self) -> bool:
        """Fail the trials of workers that are silent for longer than the lease; frees their splits.

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
            self.progress.note(f"trial {trial.number}: {reason}; its split will be measured again")
        return bool(freed)

    def stale_trials(self, trials: Sequence[FrozenTrial]) -> Iterator[FrozenTrial]:
        """Running trials whose worker has certainly ended."""
        running = tally(trials).running
        # A worker records itself a moment after its trial starts. It may die in that moment. Under
        # the lock no other worker can be there; without one the trial is watched for a while.
        now = self.clock()
        unclaimed = [t.number for t in running if t.user_attrs.get("worker") is None]
        self._unclaimed = {number: self._unclaimed.get(number, now) for number in unclaimed}
        for trial in running:
            since = self._unclaimed.get(trial.number)
            if since is None:
                is_stale = is_dead(trial.user_attrs.get("worker"))
            else:
                is_stale = self.is_locked or now - since >= UNCLAIMED
            if is_stale:
                yield trial

    def take_over(self, trial: FrozenTrial) -> bool:
        """Make a dead worker's trial this process's own, to measure its split again.

        False for a split that killed too many workers: its trial fails instead.
        """
        deaths = int(trial.user_attrs.get("deaths", 0)) + 1
        # The split itself seems to kill the process, by memory or a crash.
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
