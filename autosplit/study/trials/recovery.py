"""Trials whose worker died, was silent for longer than its lease, or ends before it could tell a result."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autosplit.study.loop.progress import Progress
from autosplit.study.loop.stopping import tally
from autosplit.study.persistence.storage import set_attributes
from autosplit.study.trials import heartbeat
from autosplit.study.trials.worker_identity import is_dead, this_worker
from autosplit.study.trials.writer import Teller

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

UNCLAIMED = 60.0  # seconds after which a running trial without a worker is taken for lost
DEATHS = 5  # processes that may die over one split before it counts as failed


@dataclass(frozen=True)
class Lost:
    """Finds such trials and frees their splits; ``locked``: those who start trials hold a lock that the caller holds."""

    study: optuna.Study
    progress: Progress
    teller: Teller
    locked: bool

    def reap(self) -> bool:
        """Give up the trials whose workers have been silent for longer than their lease; their splits are free again."""
        late = self._lapsed()
        for t in late:
            worker = t.user_attrs.get("worker")
            who = (
                f"process {worker.get('pid')} on {worker.get('host')}"
                if isinstance(worker, dict)
                else "its worker"
            )
            self.teller.fail(
                t._trial_id, t.number, f"{who} was silent for longer than its lease", lost=True
            )
            self.progress.note(
                f"trial {t.number}: {who} was silent for longer than its lease; its split is free again"
            )
        return bool(late)

    def _lapsed(self) -> list[FrozenTrial]:
        silent = heartbeat.lapsed(self.study)
        return (
            [
                t
                for t in tally(self.study.get_trials(deepcopy=False)).running
                if t._trial_id in silent
            ]
            if silent
            else []
        )

    def orphans(self, trials: Sequence[FrozenTrial]) -> Iterator[FrozenTrial]:
        """Running trials whose worker certainly lives no more."""
        for t in tally(trials).running:
            worker = t.user_attrs.get("worker")
            if is_dead(worker) or (worker is None and self._is_stale(t)):
                yield t

    def _is_stale(self, trial: FrozenTrial) -> bool:
        """Whether a trial that names no worker was left so: on a file, those who start trials hold the lock we hold."""
        started = trial.datetime_start
        age = (datetime.datetime.now() - started).total_seconds() if started else UNCLAIMED
        return self.locked or age >= UNCLAIMED

    def adopt(self, trial: FrozenTrial) -> bool:
        """Take a dead worker's trial over, to measure its split again; one that killed too many fails instead."""
        deaths = int(trial.user_attrs.get("deaths", 0)) + 1
        if deaths >= DEATHS:
            self.teller.fail(
                trial._trial_id,
                trial.number,
                f"the process died {deaths} times while measuring this split",
            )
            return False
        heartbeat.beat(self.study, trial._trial_id)
        set_attributes(self.study, trial._trial_id, {"worker": this_worker(), "deaths": deaths})
        self.progress.note(f"trial {trial.number}: its worker died; measuring it again")
        return True

    def release(self, trials: Sequence[FrozenTrial], reason: str) -> None:
        """Finish what this process has running, its split unmeasured."""
        for t in tally(trials).running:
            if t.user_attrs.get("worker") == this_worker():
                self.teller.fail(t._trial_id, t.number, reason, lost=True)
