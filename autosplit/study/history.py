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
from autosplit.study.record import record_of
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


class HistoryReader:
    """Reads the history of one study; ``baselines`` are known before its first trial.

    A finished trial does not change, so its record is read and validated once.
    """

    def __init__(self, space: Space, baselines: Iterable[Baseline] = ()) -> None:
        self.space, self.baselines = space, tuple(measured_baselines(space, baselines))
        self._finished: dict[int, tuple[str, Measured | None]] = {}

    def history(self, trials: Iterable[FrozenTrial]) -> History:
        """The history of trials, in their order."""
        known = [self._finished.get(trial.number) or self._read(trial) for trial in trials]
        measured = (figures for _, figures in known if figures)
        return History(frozenset(key for key, _ in known if key), (*self.baselines, *measured))

    def _read(self, trial: FrozenTrial) -> tuple[str, Measured | None]:
        """The key of the candidate that a trial takes, empty for none, and what it measured."""
        record = record_of(trial)
        key, figures = "" if is_lost(trial) else record.key, None
        period, latency = record.period_ms, record.latency_ms
        if trial.state.name == "COMPLETE" and key and period:
            with contextlib.suppress(SplitError):
                candidate = self.space.candidate(key)
                if len(record.stage_ms) == len(candidate):
                    times = record.stage_ms, period.median, latency.median if latency else 0.0
                    figures = Measured(trial.number, candidate, *times)
        if trial.state.is_finished():
            self._finished[trial.number] = key, figures
        return key, figures


def measured_baselines(space: Space, baselines: Iterable[Baseline]) -> Iterator[Measured]:
    """The baselines that are candidates of the space, as measured candidates."""
    for number, baseline in enumerate(baselines, 1):
        if candidate := space.whole_model(baseline):
            period = baseline.period_ms.median
            stage_ms = (period / period_of(space.costs, candidate[0], [1.0]),)
            yield Measured(-number, candidate, stage_ms, period, baseline.latency_ms.median)
