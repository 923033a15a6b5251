"""Where the split that is best for some costs is looked for: among all splits, between some cuts only, or in a list.

Costs are only known to some error, so they are drawn many times, and the best split of each draw may be worth a trial. How
many draws are looked at is what a source can do in the time that a trial may cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from autosplit.cuts.stages import Stages
from autosplit.planner.batch.evaluation import SplitBatch
from autosplit.planner.batch.stage_table import StageTable
from autosplit.planner.problem.contention import ContentionCosts, costs_at
from autosplit.study.space.search_space import Space

QUICK = 1_000_000  # stages to look at up to which a plan does not take long


@dataclass(frozen=True)
class Effort:
    """How much is asked of a source.

    ``draws``: of the costs, over which a gain is weighed; for ``planned`` of them the best split is looked for.
    ``climbs``: whether what it finds may gain by moves of one group of ops. ``worth``: the expected gain that is worth a
    trial, as a share of the margin.
    """

    draws: int
    planned: int
    climbs: bool = False
    worth: float = 0.05

    @property
    def eager(self) -> bool:
        """Whether the source is asked even where the splits ahead promise enough: it answers quickly."""
        return self.planned == self.draws


_EVERY = Effort(draws=32, planned=32)
_SLOW = Effort(draws=32, planned=8)
_CUTS = Effort(
    draws=128, planned=128, climbs=True, worth=_EVERY.worth / 4
)  # many nearly best; many draws flatter none
_LIST = Effort(draws=8, planned=8)


class Source(Protocol):
    """Finds the split that is best for some costs."""

    @property
    def effort(self) -> Effort:
        """How much is asked of it."""
        ...

    def best(self, costs: ContentionCosts) -> Stages | None:
        """The best split under some costs; None where there is none."""
        ...

    def best_of_each(
        self, draws: Sequence[ContentionCosts], limits: Sequence[float]
    ) -> list[Stages | None]:
        """For each draw of the costs its best split, None where its period is not below the limit."""
        ...


@dataclass(frozen=True, eq=False)
class AllSplits:
    """Every split of a space, planned for."""

    space: Space

    @property
    def effort(self) -> Effort:
        """See Source. A plan looks at the pairs of cuts of each level but the first and the last."""
        lattice = self.space.lattice
        quick = (
            lattice is not None and len(lattice.cuts) ** 2 * max(1, self.space.stages - 2) <= QUICK
        )
        return _EVERY if quick else _SLOW

    def best(self, costs: ContentionCosts) -> Stages | None:
        """See Source."""
        return self.space.best(costs, 1)[0]

    def best_of_each(
        self, draws: Sequence[ContentionCosts], limits: Sequence[float]
    ) -> list[Stages | None]:
        """See Source."""
        return self.space.best_of_each(draws, limits)


@dataclass(frozen=True, eq=False)
class SomeCuts:
    """The splits between the cuts of a lattice, which stand for all where those are too many to hold."""

    lattice: StageTable
    effort = _CUTS

    def best(self, costs: ContentionCosts) -> Stages | None:
        """See Source."""
        return next(iter(self.lattice.best(costs_at(costs, self.lattice.stages), 1)), None)

    def best_of_each(
        self, draws: Sequence[ContentionCosts], limits: Sequence[float]
    ) -> list[Stages | None]:
        """See Source."""
        return self.lattice.best_of_each([costs_at(c, self.lattice.stages) for c in draws], limits)


@dataclass(frozen=True, eq=False)
class SomeSplits:
    """A list of splits, which stands for all where many trials are measured and one more changes little."""

    pool: SplitBatch
    effort = _LIST

    def best(self, costs: ContentionCosts) -> Stages | None:
        """See Source."""
        return self.pool.stages[int(self.pool.periods(costs).argmin())]

    def best_of_each(
        self, draws: Sequence[ContentionCosts], limits: Sequence[float]
    ) -> list[Stages | None]:
        """See Source."""
        periods = np.array([self.pool.periods(costs) for costs in draws])
        best = periods.argmin(axis=1)
        least = periods[np.arange(len(draws)), best]
        return [
            self.pool.stages[n] if p < limit else None
            for n, p, limit in zip(best, least, limits, strict=True)
        ]
