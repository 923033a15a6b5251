"""What the corrected costs promise: the free splits ahead, what each is expected to gain, and whether any is worth a trial."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice

import numpy as np

from autosplit.cuts.stages import Stages
from autosplit.errors import Infeasible
from autosplit.planner.batch.evaluation import SplitBatch
from autosplit.planner.batch.stage_table import StageTable
from autosplit.planner.problem.contention import ContentionCosts, costs_at
from autosplit.planner.problem.problem import Array
from autosplit.study.acquisition.candidate_sources import AllSplits, SomeCuts, SomeSplits, Source
from autosplit.study.acquisition.history import History, generator
from autosplit.study.space.search_space import Space
from autosplit.study.space.unmeasured import AHEAD, free_splits
from autosplit.study.surrogate.cost_correction import Corrected, Measured, correct

RIVALS = 8  # measured splits of which one is the best
PLANNED = 32  # measured trials from which on the plan is made anew only when they have doubled
AROUND = 3  # splits whose neighbours are weighed in between
CLIMBED = 32  # moves from the most promising split to one that promises more, at most


@dataclass(frozen=True, eq=False)
class Outlook:
    """Corrected costs, and the most promising free splits under them, best first; ``source`` is where more are looked for."""

    space: Space
    history: History
    corrected: Corrected
    free: tuple[Stages, ...]
    source: Source

    @cached_property
    def measured(self) -> SplitBatch:
        """The measured splits."""
        return self.space.placing.batch(m.stages for m in self.history.measured)

    @property
    def margin(self) -> float:
        """The gain that is worth a trial, relative: half the noise, about what a final comparison can tell apart."""
        return self.corrected.noise / 2

    @cached_property
    def gains(self) -> dict[Stages, float]:
        """What each of some free splits is expected to gain over the best measured one, relative.

        They are those ahead, and for each draw of the costs its best split; a loss counts as no gain (expected
        improvement: Jones, Schonlau and Welch, Efficient global optimization, 1998, section 4.1). Where the source takes
        long, it is asked for a few draws only, and for none while those ahead promise enough. Where it climbs, the most
        promising split is moved, a group of ops at a time, as long as that gains.
        """
        effort, place = self.source.effort, len(self.history.measured)
        draws = [self.corrected.draw(generator(place, n)) for n in range(effort.draws)]
        best = sorted((m.stages for m in self.history.measured), key=self._expected)[:RIVALS]
        rivals = self.space.placing.batch(best)
        least = np.array([rivals.periods(costs).min(initial=math.inf) for costs in draws])
        found = dict.fromkeys(self.free)
        gains = {} if effort.eager else self._gains(found, draws, least)
        if max(gains.values(), default=0.0) >= self.worth:
            return gains
        for stages in self.source.best_of_each(
            draws[: effort.planned], least[: effort.planned].tolist()
        ):
            if stages is not None and self.space.key(stages) not in self.history.taken:
                found[stages] = None
        gains = self._gains(found, draws, least)
        return self._climbed(gains, draws, least) if effort.climbs else gains

    def _climbed(
        self, gains: dict[Stages, float], draws: Sequence[ContentionCosts], least: Array
    ) -> dict[Stages, float]:
        """The gains of some splits and of those on the way from the best, by moves of one group, to where none gains more."""
        gains = dict(gains)
        start = None
        for _ in range(CLIMBED):
            if not gains or (best := max(gains, key=gains.__getitem__)) == start:
                break
            start = best
            near = (s for s in self.space.neighbours(start) if s not in gains)
            gains.update(
                self._gains(
                    (s for s in near if self.space.key(s) not in self.history.taken), draws, least
                )
            )
        return gains

    def _gains(
        self, splits: Iterable[Stages], draws: Sequence[ContentionCosts], least: Array
    ) -> dict[Stages, float]:
        pool = self.space.placing.batch(splits)
        periods = np.array([pool.periods(costs) for costs in draws])
        gains = np.maximum(0.0, 1 - periods / least[:, None]).mean(axis=0)
        return dict(zip(pool.stages, gains.tolist(), strict=True))

    @property
    def worth(self) -> float:
        """The expected gain that is worth a trial, relative."""
        return self.margin * self.source.effort.worth

    @property
    def promising(self) -> Stages:
        """The free split of largest expected gain."""
        return max(self.gains, key=lambda stages: self.gains[stages])

    def guess(self, rng: np.random.Generator) -> Stages:
        """The split that is best for costs drawn from what is known of them."""
        return self.source.best(self.corrected.draw(rng)) or self.free[0]

    @cached_property
    def _expected(self) -> Callable[[Stages], float]:
        periods = self.measured.periods(self.corrected.crowd)
        return dict(zip(self.measured.stages, periods.tolist(), strict=True)).__getitem__

    @property
    def converged(self) -> bool:
        """Whether no free split is expected to gain what is worth a trial."""
        if not self.history.tells_errors:
            return not self.free
        return max(self.gains.values(), default=0.0) < self.worth


@lru_cache(maxsize=4)
def corrected_costs(
    space: Space, devices: tuple[str, ...], measured: tuple[Measured, ...]
) -> Corrected:
    """``correct`` for the costs of a space, once for all who ask at the same state of the study."""
    return correct(space.costs, devices, measured, space.empty)


@lru_cache(maxsize=4)
def outlook(space: Space, devices: tuple[str, ...], history: History) -> Outlook:
    """Correct the costs by all that was measured and plan again.

    With many trials measured one more changes little. So from PLANNED on the plan is made anew when the number of
    measured trials has doubled; in between what was listed then, and what lies around its best, is weighed again.
    """
    corrected = corrected_costs(space, devices, history.measured)
    if len(history.measured) >= PLANNED:
        view = _weighed(space, devices, history, corrected)
        if view.free:
            return view
    plan, lattice = _near(space, corrected, history.measured)
    source: Source = AllSplits(space)
    free: tuple[Stages, ...] = ()
    if lattice is not None:
        source = SomeCuts(lattice)
        listed = lattice.best(costs_at(corrected.crowd, space.stages), len(history.taken) + AHEAD)
        found = dict.fromkeys([*plan, *listed])
        free = tuple(islice((s for s in found if space.key(s) not in history.taken), AHEAD))
    starts = tuple(m.stages for m in history.measured[-AHEAD:])
    free = free or tuple(free_splits(space, corrected.crowd, history.taken, starts))
    return Outlook(space, history, corrected, free, source)


def _near(
    space: Space, corrected: Corrected, measured: tuple[Measured, ...]
) -> tuple[tuple[Stages, ...], StageTable | None]:
    """Where the cuts are too many to hold them all: the exact plan, and the stages near it and the best measured splits."""
    if space.empty or space.lattice is not None:
        return (), None
    try:
        plan = space.best(corrected.crowd, 1)
    except Infeasible:
        return (), None
    pool = space.placing.batch(m.stages for m in measured)
    best = np.argsort(pool.periods(corrected.crowd), kind="stable")[:RIVALS].tolist()
    return tuple(plan), space.near([*plan, *(pool.stages[n] for n in best)])


def _weighed(
    space: Space, devices: tuple[str, ...], history: History, corrected: Corrected
) -> Outlook:
    keys, pool = _listed(
        space, devices, history.measured[: 1 << len(history.measured).bit_length() - 1]
    )
    best = np.argsort(pool.periods(corrected.crowd), kind="stable")[:AROUND]
    near = {space.key(stages): stages for n in best for stages in space.neighbours(pool.stages[n])}
    fresh = {key: stages for key, stages in near.items() if key not in keys}
    pool = pool.joined(space.placing.batch(fresh.values()))
    order = np.argsort(pool.periods(corrected.crowd), kind="stable")
    names = [*keys, *fresh]
    free = tuple(islice((pool.stages[n] for n in order if names[n] not in history.taken), AHEAD))
    return Outlook(space, history, corrected, free, SomeSplits(pool))


@lru_cache(maxsize=2)
def _listed(
    space: Space, devices: tuple[str, ...], measured: tuple[Measured, ...]
) -> tuple[dict[str, None], SplitBatch]:
    """The best splits under the costs corrected by these trials, and the best few for each draw of what they may be.

    Their keys, and the splits in the same order.
    """
    corrected = corrected_costs(space, devices, measured)
    plan, lattice = _near(space, corrected, measured)

    def best(costs: ContentionCosts, count: int, seconds: float) -> list[Stages]:
        return (
            lattice.best(costs_at(costs, space.stages), count)
            if lattice
            else space.best(costs, count, seconds)
        )

    splits = [*plan, *best(corrected.crowd, 3 * len(measured), 10.0)]
    for draw in range(SomeSplits.effort.draws):
        splits += best(corrected.draw(generator(len(measured), draw)), 4, 2.0)
    found = {space.key(stages): stages for stages in splits}
    return dict.fromkeys(found), space.placing.batch(found.values())
