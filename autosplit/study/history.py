"""The history of a study, which is known when a candidate is chosen.

A finished trial is read once. A database is untrusted and may hold trials of other programs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from optuna.trial import FrozenTrial

from autosplit.errors import SplitError
from autosplit.hardware.measurement.results import Baseline
from autosplit.planner.evaluation import period_of
from autosplit.study.record import record_of
from autosplit.study.results import is_lost
from autosplit.study.space import Space
from autosplit.study.surrogate.correction import Measured


@dataclass(frozen=True, eq=False)
class History:
    """What is known when a candidate is chosen.

    ``taken``: the keys of candidates that are measured, failed, being measured or enqueued.
    ``measured``: the measured trials, and the measured baselines, which have negative numbers.
    """

    taken: frozenset[str] = frozenset()
    measured: tuple[Measured, ...] = ()

    @property
    def trials(self) -> tuple[Measured, ...]:
        """The measured trials, without the baselines."""
        return tuple(m for m in self.measured if m.number >= 0)


class TrialReader:
    """Reads the trials of a study as measured candidates of its space.

    ``baselines``: what is known before the first trial.
    """

    def __init__(self, space: Space, baselines: Iterable[Measured] = ()) -> None:
        self.space, self.baselines = space, tuple(baselines)
        self._finished: dict[int, tuple[FrozenTrial, str, Measured | None]] = {}
        self._latest = History(frozenset(), self.baselines)

    def history(self, trials: Sequence[FrozenTrial], exclude: int | None = None) -> History:
        """The history of trials, in their order, without the one numbered ``exclude``.

        Returns the same object as before if nothing is new.
        """
        read = [self._read(trial) for trial in trials if trial.number != exclude]
        taken = frozenset(key for _, key, _ in read if key)
        measured = (*self.baselines, *(m for _, _, m in read if m is not None))
        if (taken, measured) != (self._latest.taken, self._latest.measured):
            self._latest = History(taken, measured)
        return self._latest

    def is_taken(self, key: str, others: Iterable[FrozenTrial]) -> bool:
        """Whether some other trials have the candidate of a key."""
        return any(self._read(trial)[1] == key for trial in others)

    def _read(self, trial: FrozenTrial) -> tuple[FrozenTrial, str, Measured | None]:
        """A trial with its key, empty for one that has none or was lost, and what it measured."""
        known = self._finished.get(trial.number)
        if known is None or known[0] is not trial:
            key = "" if is_lost(trial) else record_of(trial).key
            known = trial, key, self._measured(trial, key) if key else None
            if trial.state.is_finished():
                self._finished[trial.number] = known
        return known

    def _measured(self, trial: FrozenTrial, key: str) -> Measured | None:
        result = record_of(trial)
        period, latency = result.period_ms, result.latency_ms
        if trial.state.name == "COMPLETE" and period:
            with contextlib.suppress(SplitError):
                candidate = self.space.candidate(key)
                if len(result.stage_ms) == len(candidate):
                    figures = result.stage_ms, period.median, latency.median if latency else 0.0
                    return Measured(trial.number, candidate, *figures)
        return None


def measured_baselines(space: Space, baselines: Iterable[Baseline]) -> Iterator[Measured]:
    """The baselines that are candidates of the space, as measured candidates."""
    for number, baseline in enumerate(baselines, 1):
        if candidate := space.whole_model(baseline):
            period = baseline.period_ms.median
            stage_ms = (period / period_of(space.costs, candidate[0], [1.0]),)
            yield Measured(-number, candidate, stage_ms, period, baseline.latency_ms.median)
