"""What the corrected costs promise: free splits, their gain, and whether any is worth a trial.

Expected improvement: Jones, Schonlau and Welch, Efficient global optimization of expensive
black-box functions, 1998, section 4.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any

import numpy as np

from autosplit.cuts.stages import Stages
from autosplit.errors import Infeasible
from autosplit.planner.batch.evaluation import Batch
from autosplit.planner.batch.stage_table import StageTable
from autosplit.planner.partition.problem import Array
from autosplit.planner.problem.contention import ContentionCosts, costs_at
from autosplit.study.acquisition.candidate_sources import (
    CandidateSource,
    ListedSplits,
    PlannedSpace,
    TableSplits,
)
from autosplit.study.acquisition.history import History, generator
from autosplit.study.space.candidate_space import CandidateSpace
from autosplit.study.space.search_space import Space
from autosplit.study.space.unmeasured import CANDIDATES, free_splits
from autosplit.study.surrogate.cost_correction import Corrected, Measured

INCUMBENTS = 8  # measured splits of which one is the best
PLANNED = 32  # measured trials from which on the plan is renewed only when they have doubled
CENTRES = 3  # splits whose neighbours are weighed in between
CLIMB_LIMIT = 32  # moves from the most promising split to one that promises more


@dataclass(frozen=True, eq=False)
class Outlook:
    """Corrected costs, and the most promising ``free`` splits under them, best first.

    ``source`` is where more of them are searched.
    """

    space: CandidateSpace
    history: History
    corrected: Corrected
    free: tuple[Any, ...]
    source: CandidateSource

    @property
    def margin(self) -> float:
        """The gain that counts, relative: half the noise, about what the final comparison shows."""
        return self.corrected.noise / 2

    @property
    def worth(self) -> float:
        """The expected gain that is worth a trial, relative."""
        return self.margin * self.source.effort.worth

    @cached_property
    def gains(self) -> dict[Any, float]:
        """The expected gain of some free splits over the best measured one, relative.

        A loss counts as no gain. The splits are those of ``free``, and for each draw of the costs
        its best one. A source that takes long is asked for a few draws only, and for none while
        those of ``free`` promise enough. With a source that climbs, the most promising split is
        improved by moving a group of ops at a time, as long as that gains.
        """
        effort = self.source.effort
        count = len(self.history.measured)
        # The same draws for the same history, so that a resumed study chooses as it would have.
        draws = [self.corrected.draw(generator(count, n)) for n in range(effort.draws)]
        # A gain is over what each draw says of the best measured split: errors that both share
        # cancel.
        least = np.array([self._least_measured(costs) for costs in draws])
        candidates = dict.fromkeys(self.free)
        # A quick source is asked even where the splits at hand promise enough.
        if effort.planned < effort.draws:
            gains = self._gains(candidates, draws, least)
            if max(gains.values(), default=0.0) >= self.worth:
                return gains
        limits = least[: effort.planned].tolist()
        for stages in self.source.best_of_each(draws[: effort.planned], limits):
            if stages is not None and self.is_free(stages):
                candidates[stages] = None
        gains = self._gains(candidates, draws, least)
        if effort.climbs:
            self._climb(gains, draws, least)
        return gains

    def _climb(self, gains: dict[Any, float], draws: Sequence[Any], least: Array) -> None:
        """Add the free neighbours of the most promising split, until none promises more."""
        start = None
        for _ in range(CLIMB_LIMIT):
            best = max(gains, key=lambda stages: gains[stages], default=None)
            # No neighbour promises more: a local optimum.
            if best is None or best == start:
                return
            start = best
            neighbours = [
                stages
                for stages in self.space.neighbours(start)
                if stages not in gains and self.is_free(stages)
            ]
            gains.update(self._gains(neighbours, draws, least))

    def _gains(self, splits: Iterable[Any], draws: Sequence[Any], least: Array) -> dict[Any, float]:
        batch = self.space.evaluator.batch(splits)
        periods = np.array([batch.periods(costs) for costs in draws])
        # Expected improvement: the mean over the draws, a loss counting as zero.
        gains = np.maximum(0.0, 1 - periods / least[:, None]).mean(axis=0)
        return dict(zip(batch.stages, gains.tolist(), strict=True))

    @property
    def promising(self) -> Any:
        """The free split of largest expected gain; before the first trial that of least period."""
        if not self.history.measured:
            return self.free[0]
        return max(self.gains, key=lambda stages: self.gains[stages])

    @property
    def explores(self) -> bool:
        """Whether enough is known of the costs to draw them: else draws are far apart."""
        return self.history.tells_errors

    def guess(self, rng: np.random.Generator) -> Any | None:
        """The split that is best for costs drawn from what is known; None if it is taken."""
        best = self.source.best(self.corrected.draw(rng)) or self.free[0]
        return None if self.space.key(best) in self.history.taken else best

    @property
    def converged(self) -> bool:
        """Whether no free split is expected to gain what is worth a trial."""
        if not self.history.tells_errors:
            return not self.free
        return max(self.gains.values(), default=0.0) < self.worth

    def is_free(self, candidate: Any) -> bool:
        """Whether no trial has it, in the runtimes that are fastest by the corrected costs."""
        costs = self.corrected.contention_costs
        return self.space.key(candidate, costs) not in self.history.taken

    def _least_measured(self, costs: Any) -> float:
        """The least period, under some costs, of the measured splits that are likely the best."""
        periods = _periods(self.space, self.corrected, self._incumbents, costs)
        return float(periods.min(initial=math.inf))

    @cached_property
    def _incumbents(self) -> list[Measured]:
        return _best(self.space, self.corrected, self.history.measured, INCUMBENTS)


# The cache is for all that ask at the same state of a study.
@lru_cache(maxsize=4)
def corrected_costs(space: CandidateSpace, measured: tuple[Measured, ...]) -> Corrected:
    """The costs of a space corrected by all that was measured."""
    return space.corrected(measured)


@lru_cache(maxsize=4)
def outlook(space: CandidateSpace, history: History) -> Outlook:
    """Correct the costs by all that was measured, and list what is promising under them."""
    if isinstance(space, Space):
        return _split_outlook(space, history)
    corrected = corrected_costs(space, history.measured)
    starts = [m.candidate for m in history.measured[-CENTRES:]]
    free = free_splits(space, corrected.contention_costs, history.taken, starts)
    return Outlook(space, history, corrected, tuple(free), PlannedSpace(space))


def _split_outlook(space: Space, history: History) -> Outlook:
    """Correct the costs by all that was measured, and plan again.

    With many trials measured one more changes little. From PLANNED on the plan is renewed when the
    number of measured trials has doubled; in between what was listed then is weighed again, with
    the splits around its best.
    """
    corrected = corrected_costs(space, history.measured)
    if len(history.measured) >= PLANNED:
        view = _listed_outlook(space, history, corrected)
        if view.free:
            return view
    plan, table = _plan_and_table(space, corrected, history.measured)
    source: CandidateSource = PlannedSpace(space)
    free: list[Stages] = []
    if table is not None:
        source = TableSplits(table)
        count = len(history.taken) + CANDIDATES
        listed = table.best(costs_at(corrected.contention_costs, space.stages), count)
        splits = dict.fromkeys([*plan, *listed])
        view = Outlook(space, history, corrected, (), source)
        free = list(filter(view.is_free, splits))[:CANDIDATES]
    if not free:
        # Everything that was listed is taken: go on around the latest trials.
        starts = [m.stages for m in history.measured[-CANDIDATES:]]
        free = free_splits(space, corrected.contention_costs, history.taken, starts)
    return Outlook(space, history, corrected, tuple(free), source)


def _best(
    space: CandidateSpace, corrected: Corrected, measured: Sequence[Measured], count: int
) -> list[Measured]:
    """The measured splits of least corrected period, best first; of equal ones the earliest."""
    periods = _periods(space, corrected, measured, corrected.contention_costs)
    return [measured[n] for n in np.argsort(periods, kind="stable")[:count]]


def _periods(
    space: CandidateSpace, corrected: Corrected, measured: Sequence[Measured], costs: Any
) -> Array:
    """The period of each measured split under some costs, in the runtimes that it had."""
    if space.costs.runtimes:
        under = corrected.period_under
        return np.array([under(costs, m.candidate, m.runtimes) for m in measured])
    return space.evaluator.batch(m.candidate for m in measured).periods(costs)


def _plan_and_table(
    space: Space, corrected: Corrected, measured: Sequence[Measured]
) -> tuple[list[Stages], StageTable | None]:
    """Where the cuts are too many for a table of all, the exact plan and a table of stages near it.

    The table is also of the stages near the best measured splits.
    """
    if space.empty or space.stage_table is not None:
        return [], None
    try:
        plan = space.best(corrected.contention_costs, 1)
    except Infeasible:
        return [], None
    best = [m.stages for m in _best(space, corrected, measured, INCUMBENTS)]
    return plan, space.table_near([*plan, *best])


def _listed_outlook(space: Space, history: History, corrected: Corrected) -> Outlook:
    """What was listed at the last power of two of measured trials, weighed again."""
    # Any process finds the same listing, whichever trials it saw itself.
    last_listing = 1 << len(history.measured).bit_length() - 1
    keys, batch = _listed(space, history.measured[:last_listing])
    centres = np.argsort(batch.periods(corrected.contention_costs), kind="stable")[:CENTRES]
    neighbours: dict[str, Stages] = {}
    for n in centres:
        for stages in space.neighbours(batch.stages[n]):
            neighbours[space.key(stages)] = stages
    added = {key: stages for key, stages in neighbours.items() if key not in keys}
    batch = batch.joined(space.evaluator.batch(added.values()))
    order = np.argsort(batch.periods(corrected.contention_costs), kind="stable")
    view = Outlook(space, history, corrected, (), ListedSplits(batch))
    free = (batch.stages[n] for n in order if view.is_free(batch.stages[n]))
    return replace(view, free=tuple(islice(free, CANDIDATES)))


@lru_cache(maxsize=2)
def _listed(space: Space, measured: tuple[Measured, ...]) -> tuple[dict[str, None], Batch[Stages]]:
    """The best splits under the costs corrected by these trials, and the best few of each draw.

    Returns their keys, and the splits in the same order.
    """
    corrected = corrected_costs(space, measured)
    plan, table = _plan_and_table(space, corrected, measured)

    def best(costs: ContentionCosts, count: int, seconds: float) -> list[Stages]:
        if table is not None:
            return table.best(costs_at(costs, space.stages), count)
        return space.best(costs, count, seconds)

    splits = [*plan, *best(corrected.contention_costs, 3 * len(measured), 10.0)]
    for draw in range(ListedSplits.effort.draws):
        splits += best(corrected.draw(generator(len(measured), draw)), 4, 2.0)
    by_key = {space.key(stages): stages for stages in splits}
    return dict.fromkeys(by_key), space.evaluator.batch(by_key.values())
