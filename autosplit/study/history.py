"""The history of a study, which is known when a candidate is chosen.

A database is untrusted and may hold trials of other programs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from optuna.trial import FrozenTrial

from autosplit.errors import SplitError
from autosplit.hardware.measurement.results import Baseline
from autosplit.planner.evaluation import period_of
from autosplit.study.record import TrialRecord, record_of
from autosplit.study.results import is_lost
from autosplit.study.space import Space
from autosplit.study.surrogate.correction import Measured


@dataclass(frozen=True)
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


def history_of(
    space: Space, trials: Iterable[FrozenTrial], baselines: Iterable[Measured] = ()
) -> History:
    """The history of trials, in their order; ``baselines`` are known before the first one."""
    known = [(trial, record_of(trial)) for trial in trials if not is_lost(trial)]
    measured = (_measured(space, trial, record) for trial, record in known)
    taken = frozenset(record.key for _, record in known if record.key)
    return History(taken, (*baselines, *filter(None, measured)))


def _measured(space: Space, trial: FrozenTrial, record: TrialRecord) -> Measured | None:
    period, latency = record.period_ms, record.latency_ms
    if trial.state.name == "COMPLETE" and record.key and period:
        with contextlib.suppress(SplitError):
            candidate = space.candidate(record.key)
            if len(record.stage_ms) == len(candidate):
                figures = record.stage_ms, period.median, latency.median if latency else 0.0
                return Measured(trial.number, candidate, *figures)
    return None


def measured_baselines(space: Space, baselines: Iterable[Baseline]) -> Iterator[Measured]:
    """The baselines that are candidates of the space, as measured candidates."""
    for number, baseline in enumerate(baselines, 1):
        if candidate := space.whole_model(baseline):
            period = baseline.period_ms.median
            stage_ms = (period / period_of(space.costs, candidate[0], [1.0]),)
            yield Measured(-number, candidate, stage_ms, period, baseline.latency_ms.median)
