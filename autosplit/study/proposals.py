"""Which split to measure next: pure functions of what was measured, the seed and the trial number."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from autosplit.errors import Infeasible
from autosplit.hardware.bench import Stages
from autosplit.planner import CostModel, evaluate
from autosplit.study.correction import Corrected, Measured, correct
from autosplit.study.space import Space

AHEAD = 12  # unmeasured splits that are looked at each time
EXPLORATION = 0.2  # share of the trials that go to the split that may be best, not to the one that is expected to be
SEARCHED = 2_000  # splits that are visited in search of one that is free


@dataclass(frozen=True)
class History:
    """What is known when a split is chosen: ``taken`` are the keys of splits measured, failed or being measured."""

    taken: frozenset[str] = frozenset()
    measured: tuple[Measured, ...] = ()


@dataclass(frozen=True)
class Outlook:
    """Corrected costs, and the most promising free splits under them, best first."""

    corrected: Corrected
    free: tuple[Stages, ...]

    def potential(self) -> float:
        """The least period, in ms, that a free split may have: each of its stages one standard deviation faster."""
        return min((self.corrected.period(stages, 1.0) for stages in self.free), default=float("inf"))

    def expected(self, measured: Iterable[Measured]) -> float:
        """The least period, in ms, that the corrected costs give a measured split."""
        return min((self.corrected.period(m.stages) for m in measured), default=float("inf"))


def generator(seed: int, number: int, attempt: int = 0) -> np.random.Generator:
    """The random numbers of one trial; the same whatever happened to the process that draws them."""
    return np.random.default_rng((seed, number, attempt))


@lru_cache(maxsize=4)
def outlook(space: Space, devices: tuple[str, ...], history: History) -> Outlook:
    """Correct the costs by all that was measured and plan again."""
    corrected = correct(space.costs, devices, history.measured)
    starts = tuple(m.stages for m in history.measured[-AHEAD:])
    return Outlook(corrected, tuple(free_splits(space, corrected.costs, history.taken, starts)))


def planned(space: Space, devices: tuple[str, ...], history: History, rng: np.random.Generator) -> Stages | None:
    """The free split that the corrected costs put first; now and then the one that may be best within their error."""
    view = outlook(space, devices, history)
    if not view.free:
        return None
    if history.measured and rng.random() < EXPLORATION:
        return min(view.free, key=lambda stages: view.corrected.period(stages, 1.0))
    return view.free[0]


def randomly(space: Space, history: History, rng: np.random.Generator) -> Stages | None:
    """A free split at random."""
    start = None
    for _ in range(50):
        start = space.random(rng)
        if start is not None and space.key(start) not in history.taken:
            return start
    return nearest_free(space, start, history)


def next_listed(space: Space, history: History) -> Stages | None:
    """The next free split in the list of all. Raises ConfigError where they are too many to list."""
    return next((stages for stages in space.listed if space.key(stages) not in history.taken), None)


def nearest_free(space: Space, start: Stages | None, history: History) -> Stages | None:
    """A free split few moves of one op away from ``start``; None where there is none."""
    if start is not None:
        for found in _around(space, [start]):
            if space.key(found) not in history.taken:
                return found
    return next(iter(free_splits(space, space.costs, history.taken, ())), None)


def free_splits(space: Space, costs: CostModel, taken: frozenset[str], starts: tuple[Stages, ...]) -> list[Stages]:
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
    free = [stages for key, stages in found.items() if key not in taken]
    return sorted(free, key=lambda stages: evaluate(costs, stages).period)[:AHEAD]


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
