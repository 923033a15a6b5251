"""Which split to measure next: pure functions of what was measured, the seed and the trial number."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice

import numpy as np

from autosplit.errors import Infeasible
from autosplit.hardware.bench import Stages
from autosplit.planner import CostModel
from autosplit.study.correction import Corrected, Measured, correct
from autosplit.study.crowd import Crowd, costs_of
from autosplit.study.lattice import Lattice
from autosplit.study.pool import Array, Pool
from autosplit.study.space import Space

AHEAD = 32  # unmeasured splits that are looked at each time
EXPLORATION = 0.1  # share of the trials that go to a split that may be the best, not to the one that promises most
DRAWS = 32  # of costs from what is known of them
MANY_DRAWS = 128  # those where the cuts near some splits stand for all: there are many that are nearly best
FEW_DRAWS = 8  # those with many trials measured, and those that are planned for where a plan takes long
QUICK = 1_000_000  # stages to look at up to which it does not
WORTH = 0.05  # expected gain that is worth a trial, as a share of the margin
RIVALS = 8  # measured splits of which one is the best
FEWEST_MEASURED = 3  # before that the error of the costs is not known well enough to stop for it,
FEWEST_STAGES = 10  # nor before as many stage times: five trials of two stages
PLANNED = 32  # measured trials from which on the plan is made anew only when they have doubled
AROUND = 3  # splits whose neighbours are weighed in between
CLIMBED = 32  # such moves at most
SEARCHED = 2_000  # splits that are visited in search of one that is free


@dataclass(frozen=True)
class History:
    """What is known when a split is chosen: ``taken`` are the keys of splits measured, failed or being measured."""

    taken: frozenset[str] = frozenset()
    measured: tuple[Measured, ...] = ()


@dataclass(frozen=True, eq=False)
class Outlook:
    """Corrected costs, and the most promising free splits under them, best first.

    ``pool`` holds the splits that stand for all where planning for every draw of costs would take too long, ``lattice``
    the stages that do where all cuts are too many.
    """

    space: Space
    history: History
    corrected: Corrected
    free: tuple[Stages, ...]
    pool: Pool | None = None
    lattice: Lattice | None = None

    @cached_property
    def measured(self) -> Pool:
        """The measured splits."""
        return self.space.placing.pool(m.stages for m in self.history.measured)

    @property
    def margin(self) -> float:
        """The gain that is worth a trial, relative: half the noise, about what a final comparison can tell apart."""
        return self.corrected.noise / 2

    @cached_property
    def gains(self) -> dict[Stages, float]:
        """What each of some free splits is expected to gain over the best measured one, relative.

        They are those ahead, and for each draw of the costs its best split; a loss counts as no gain (expected
        improvement: Jones, Schonlau and Welch, Efficient global optimization, 1998, section 4.1). Where a plan takes long,
        there is one for a few draws only, and for none while those ahead promise enough. Where cuts near some splits stand
        for all, the most promising split is moved, a group of ops at a time, as long as that gains.
        """
        place = len(self.history.measured)
        count = MANY_DRAWS if self.lattice is not None else DRAWS if self.pool is None else FEW_DRAWS
        draws = [self.corrected.draw(generator(place, n)) for n in range(count)]
        best = sorted((m.stages for m in self.history.measured), key=self._expected)[:RIVALS]
        rivals = self.space.placing.pool(best)
        least = np.array([rivals.periods(costs).min(initial=math.inf) for costs in draws])
        quick = self.pool is not None or self.lattice is not None or self._pairs <= QUICK
        found = dict.fromkeys(self.free)
        gains = {} if quick else self._gains(found, draws, least)
        if max(gains.values(), default=0.0) >= self.worth:
            return gains
        planned = count if quick else FEW_DRAWS
        for stages in self._best(draws[:planned], least[:planned].tolist()):
            if stages is not None and self.space.key(stages) not in self.history.taken:
                found[stages] = None
        gains = self._gains(found, draws, least)
        return gains if self.lattice is None else self._climbed(gains, draws, least)

    def _climbed(self, gains: dict[Stages, float], draws: Sequence[Crowd], least: Array) -> dict[Stages, float]:
        """The gains of some splits and of those on the way from the best, by moves of one group, to where none gains more."""
        gains = dict(gains)
        start = None
        for _ in range(CLIMBED):
            if not gains or (best := max(gains, key=gains.__getitem__)) == start:
                break
            start = best
            near = (s for s in self.space.neighbours(start) if s not in gains)
            gains.update(self._gains((s for s in near if self.space.key(s) not in self.history.taken), draws, least))
        return gains

    @property
    def _pairs(self) -> float:
        """How many stages a plan looks at at most: the pairs of cuts of each level but the first and the last."""
        lattice = self.space.lattice
        return math.inf if lattice is None else len(lattice.cuts) ** 2 * max(1, self.space.stages - 2)

    def _gains(self, splits: Iterable[Stages], draws: Sequence[Crowd], least: Array) -> dict[Stages, float]:
        pool = self.space.placing.pool(splits)
        periods = np.array([pool.periods(costs) for costs in draws])
        gains = np.maximum(0.0, 1 - periods / least[:, None]).mean(axis=0)
        return dict(zip(pool.stages, gains.tolist(), strict=True))

    @property
    def worth(self) -> float:
        """The expected gain that is worth a trial, relative; less where many draws flatter no split."""
        return self.margin * WORTH * (1.0 if self.lattice is None else DRAWS / MANY_DRAWS)

    @property
    def promising(self) -> Stages:
        """The free split of largest expected gain."""
        return max(self.gains, key=lambda stages: self.gains[stages])

    def guess(self, rng: np.random.Generator) -> Stages:
        """The split that is best for costs drawn from what is known of them."""
        costs = self.corrected.draw(rng)
        if self.lattice is not None:
            return next(iter(self.lattice.best(costs_of(costs, self.space.stages), 1)), self.free[0])
        if self.pool is None:
            return self.space.best(costs, 1)[0]
        return self.pool.stages[int(self.pool.periods(costs).argmin())]

    def _best(self, draws: Sequence[Crowd], limits: Sequence[float]) -> list[Stages | None]:
        """For each draw of the costs its best split, None where its period is not below the limit."""
        if self.lattice is not None:
            return self.lattice.best_of_each([costs_of(c, self.space.stages) for c in draws], limits)
        if self.pool is None:
            return self.space.best_of_each(draws, limits)
        periods = np.array([self.pool.periods(costs) for costs in draws])
        best = periods.argmin(axis=1)
        least = periods[np.arange(len(draws)), best]
        return [self.pool.stages[n] if p < limit else None for n, p, limit in zip(best, least, limits, strict=True)]

    @cached_property
    def _expected(self) -> Callable[[Stages], float]:
        periods = self.measured.periods(self.corrected.crowd)
        return dict(zip(self.measured.stages, periods.tolist(), strict=True)).__getitem__

    @property
    def converged(self) -> bool:
        """Whether no free split is expected to gain what is worth a trial."""
        measured = self.history.measured
        if len(measured) < FEWEST_MEASURED or sum(bool(ops) for m in measured for ops in m.stages) < FEWEST_STAGES:
            return not self.free
        return max(self.gains.values(), default=0.0) < self.worth


def generator(seed: int, place: int, attempt: int = 0) -> np.random.Generator:
    """The random numbers of the trial at a place in its study, whatever process draws them."""
    return np.random.default_rng((seed, place, attempt))


@lru_cache(maxsize=4)
def corrected_costs(space: Space, devices: tuple[str, ...], measured: tuple[Measured, ...]) -> Corrected:
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
    free: tuple[Stages, ...] = ()
    if lattice is not None:
        listed = lattice.best(costs_of(corrected.crowd, space.stages), len(history.taken) + AHEAD)
        found = dict.fromkeys([*plan, *listed])
        free = tuple(islice((s for s in found if space.key(s) not in history.taken), AHEAD))
    starts = tuple(m.stages for m in history.measured[-AHEAD:])
    free = free or tuple(free_splits(space, corrected.crowd, history.taken, starts))
    return Outlook(space, history, corrected, free, lattice=lattice)


def _near(
    space: Space, corrected: Corrected, measured: tuple[Measured, ...]
) -> tuple[tuple[Stages, ...], Lattice | None]:
    """Where the cuts are too many to hold them all: the exact plan, and the stages near it and the best measured splits."""
    if space.empty or space.lattice is not None:
        return (), None
    try:
        plan = space.best(corrected.crowd, 1)
    except Infeasible:
        return (), None
    pool = space.placing.pool(m.stages for m in measured)
    best = np.argsort(pool.periods(corrected.crowd), kind="stable")[:RIVALS].tolist()
    return tuple(plan), space.near([*plan, *(pool.stages[n] for n in best)])


def _weighed(space: Space, devices: tuple[str, ...], history: History, corrected: Corrected) -> Outlook:
    keys, pool = _listed(space, devices, history.measured[: 1 << len(history.measured).bit_length() - 1])
    best = np.argsort(pool.periods(corrected.crowd), kind="stable")[:AROUND]
    near = {space.key(stages): stages for n in best for stages in space.neighbours(pool.stages[n])}
    fresh = {key: stages for key, stages in near.items() if key not in keys}
    pool = pool.and_those_of(space.placing.pool(fresh.values()))
    order = np.argsort(pool.periods(corrected.crowd), kind="stable")
    names = [*keys, *fresh]
    free = tuple(islice((pool.stages[n] for n in order if names[n] not in history.taken), AHEAD))
    return Outlook(space, history, corrected, free, pool)


@lru_cache(maxsize=2)
def _listed(space: Space, devices: tuple[str, ...], measured: tuple[Measured, ...]) -> tuple[dict[str, None], Pool]:
    """The best splits under the costs corrected by these trials, and the best few for each draw of what they may be.

    Their keys, and the splits in the same order.
    """
    corrected = corrected_costs(space, devices, measured)
    plan, lattice = _near(space, corrected, measured)

    def best(costs: Crowd, count: int, seconds: float) -> list[Stages]:
        return lattice.best(costs_of(costs, space.stages), count) if lattice else space.best(costs, count, seconds)

    splits = [*plan, *best(corrected.crowd, 3 * len(measured), 10.0)]
    for draw in range(FEW_DRAWS):
        splits += best(corrected.draw(generator(len(measured), draw)), 4, 2.0)
    found = {space.key(stages): stages for stages in splits}
    return dict.fromkeys(found), space.placing.pool(found.values())


def planned(space: Space, devices: tuple[str, ...], history: History, rng: np.random.Generator) -> Stages | None:
    """The free split that is expected to gain most under the corrected costs; now and then one that may be the best."""
    if not history.taken:
        return space.plan()
    if (whole := unmeasured_whole(space, history)) is not None:
        return whole
    view = outlook(space, devices, history)
    if not view.free:
        return None
    if history.measured and rng.random() < EXPLORATION:
        guess = view.guess(rng)
        if space.key(guess) not in history.taken:
            return guess
    return view.promising if history.measured else view.free[0]


def unmeasured_whole(space: Space, history: History) -> Stages | None:
    """The model as one stage, until it has been tried: how much stages slow each other down shows beside it alone."""
    if not space.empty or space.alone is None or space.key(space.alone) in history.taken:
        return None
    return space.alone


def randomly(space: Space, history: History, rng: np.random.Generator) -> Stages | None:
    """A free split at random."""
    start = None
    for _ in range(50):
        start = space.random(rng)
        if start is not None and space.key(start) not in history.taken:
            return start
    return nearest_free(space, start, history)


def next_listed(space: Space, history: History) -> Stages | None:
    """The plan, then the next free split in the list of all. Raises ConfigError where they are too many to list."""
    if not history.taken and space.listed:
        return space.plan()
    return next((stages for stages in space.listed if space.key(stages) not in history.taken), None)


def nearest_free(space: Space, start: Stages | None, history: History) -> Stages | None:
    """A free split few moves of one op away from ``start``; None where there is none."""
    if start is not None:
        for found in _around(space, [start]):
            if space.key(found) not in history.taken:
                return found
    return next(iter(free_splits(space, space.costs, history.taken, ())), None)


def free_splits(
    space: Space, costs: CostModel | Crowd, taken: frozenset[str], starts: tuple[Stages, ...]
) -> list[Stages]:
    """Up to AHEAD splits that are not taken, best first under ``costs``; empty only where none is left.

    The planner lists the best; where it cannot list enough of them, those around the best and ``starts`` are added.
    """
    try:
        best = space.best(costs, len(taken) + AHEAD)
    except Infeasible:
        return []
    found = {space.key(stages): stages for stages in best}
    if len(best) < len(taken) + AHEAD and (space.size is None or len(found) < space.size):
        for stages in _around(space, [*best[:AHEAD], *starts]):
            found.setdefault(space.key(stages), stages)
    pool = space.placing.pool(stages for key, stages in found.items() if key not in taken)
    order = np.argsort(pool.periods(costs), kind="stable")
    return [pool.stages[n] for n in order[:AHEAD]]


def _around(space: Space, starts: list[Stages]) -> Iterable[Stages]:
    """Splits by growing distance from ``starts``, those first, as far as SEARCHED of them."""
    seen = {space.key(stages) for stages in starts}
    queue = list(starts)
    for stages in queue:
        yield stages
        if len(queue) >= SEARCHED:
            continue
        for neighbour in space.neighbours(stages):
            if (key := space.key(neighbour)) not in seen:
                seen.add(key)
                queue.append(neighbour)
