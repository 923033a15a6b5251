"""Where the best split for some costs is searched: everywhere, between some cuts, in a list.

Costs are only known to some error, so they are drawn many times, and the best split of each draw
may be worth a trial. A source says how many draws it can answer in the time of a trial.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autosplit.planner.batch.evaluation import Batch
from autosplit.planner.batch.stage_table import StageTable
from autosplit.planner.problem.contention import ContentionCosts, costs_at
from autosplit.study.space.candidate_space import CandidateSpace
from autosplit.study.space.search_space import Space

QUICK = 1_000_000  # stages up to which a plan does not take long


@dataclass(frozen=True)
class Effort:
    """How much is asked of a source.

    ``draws``: of the costs, over which a gain is averaged; for ``planned`` of them the best split
    is searched. ``climbs``: whether its splits are improved by moving groups of ops. ``worth``: the
    expected gain that is worth a trial, as a share of the margin.
    """

    draws: int
    planned: int
    climbs: bool = False
    worth: float = 0.05


_QUICK_EFFORT = Effort(draws=32, planned=32)
_SLOW_EFFORT = Effort(draws=32, planned=8)
# A table holds many splits that are nearly best; with many draws none of them is flattered.
_TABLE_EFFORT = Effort(draws=128, planned=128, climbs=True, worth=_QUICK_EFFORT.worth / 4)
_DEPLOYMENT_EFFORT = Effort(draws=64, planned=8, climbs=True)
_LIST_EFFORT = Effort(draws=8, planned=8)


@dataclass(frozen=True, eq=False)
class PlannedSpace:
    """Every candidate of a space, searched by the planner."""

    space: CandidateSpace

    @property
    def effort(self) -> Effort:
        """A plan looks at the pairs of cuts of all inner levels."""
        if not isinstance(self.space, Space):
            return _DEPLOYMENT_EFFORT
        table = self.space.stage_table
        if table is None:
            return _SLOW_EFFORT
        pairs = len(table.cuts) ** 2 * max(1, self.space.stages - 2)
        return _QUICK_EFFORT if pairs <= QUICK else _SLOW_EFFORT

    def best(self, costs: ContentionCosts) -> Any | None:
        """The best split under some costs."""
        return self.space.best(costs, 1)[0]

    def best_of_each(
        self, draws: Sequence[ContentionCosts], limits: Sequence[float]
    ) -> Sequence[Any]:
        """For each draw of the costs its best split; it may be None above the limit."""
        return self.space.best_of_each(draws, limits)


@dataclass(frozen=True, eq=False)
class TableSplits:
    """The splits between the cuts of a table, where all cuts are too many."""

    table: StageTable
    effort = _TABLE_EFFORT

    def best(self, costs: ContentionCosts) -> Any | None:
        """See PlannedSpace; None where there is none."""
        return next(iter(self.table.best(costs_at(costs, self.table.stages), 1)), None)

    def best_of_each(self, draws: Sequence[ContentionCosts], limits: Sequence[float]) -> list[Any]:
        """See PlannedSpace."""
        models = [costs_at(costs, self.table.stages) for costs in draws]
        return self.table.best_of_each(models, limits)


@dataclass(frozen=True, eq=False)
class ListedSplits:
    """A list of splits, where so many trials are measured that one more changes little."""

    batch: Batch[Any]
    effort = _LIST_EFFORT

    def best(self, costs: ContentionCosts) -> Any | None:
        """See PlannedSpace."""
        return self.batch.stages[int(self.batch.periods(costs).argmin())]

    def best_of_each(self, draws: Sequence[ContentionCosts], limits: Sequence[float]) -> list[Any]:
        """See PlannedSpace."""
        splits: list[Any] = []
        for costs, limit in zip(draws, limits, strict=True):
            periods = self.batch.periods(costs)
            best = int(periods.argmin())
            splits.append(self.batch.stages[best] if periods[best] < limit else None)
        return splits


CandidateSource = PlannedSpace | TableSplits | ListedSplits
