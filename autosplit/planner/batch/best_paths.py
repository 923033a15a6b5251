"""The ways through levels of stages, from the empty cut to the full one, the best first.

A dynamic programme over levels 0..K tells for each cut the least period and the least latency of what is still to come. The
ways are then enumerated best first (A*: Hart, Nilsson and Raphael, 1968) with those as the bounds; both are exact or too
low, so they come in the order of period, then latency.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heappop, heappush
from itertools import count as counter

import numpy as np
from numpy.typing import NDArray

from autosplit.planner.batch.many_costs import SAME

Array = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True)
class Level:
    """The stages within a limit at one level: from the cuts ``before`` to the cuts ``after`` (indices of the lattice).

    ``tail`` and ``head``: places in those, ordered by tail.
    """

    before: slice
    after: slice
    tail: Index
    head: Index
    load: Array

    @property
    def size(self) -> int:
        """How many cuts lie before the stages."""
        return int(self.before.stop - self.before.start)

    @cached_property
    def first(self) -> Index:
        """Where the stages from each tail begin."""
        return np.searchsorted(self.tail, np.arange(self.size + 1))

    def least(self, values: Array) -> Array:
        """The least of a value of each stage over the stages of each tail; infinite for a tail without one."""
        found = np.full(self.size, math.inf)
        some = np.flatnonzero(np.diff(self.first))
        if len(some):
            found[some] = np.minimum.reduceat(values, self.first[some])
        return found

    def within(self, limit: float) -> Level:
        """Only the stages within a lower limit."""
        kept = np.flatnonzero(self.load <= limit)
        return replace(self, tail=self.tail[kept], head=self.head[kept], load=self.load[kept])


@dataclass(frozen=True)
class Ahead:
    """Per level and cut what is to come to the end: the least period and latency, and ``ways`` to go from the start."""

    limit: float
    levels: Sequence[Level]
    period: Sequence[Array]
    latency: Sequence[Array]
    ways: float

    def within(self, limit: float) -> Ahead:
        """The same for a lower limit."""
        return look(limit, [level.within(limit) for level in self.levels])


def look(limit: float, levels: Sequence[Level]) -> Ahead:
    """From the end to the start."""
    period, latency = [np.zeros(1)], [np.zeros(1)]
    ways: Array = np.ones(1)
    for level in reversed(levels):
        period.append(level.least(np.maximum(level.load, period[-1][level.head])))
        latency.append(level.least(level.load + latency[-1][level.head]))
        ways = np.asarray(np.bincount(level.tail, ways[level.head], level.size), dtype=np.float64)
    return Ahead(limit, levels, period[::-1], latency[::-1], float(ways[0]))


@dataclass(frozen=True)
class _Step:
    """One more cut of a path: no path through it has a period and latency of less ``rank`` (in units, whole)."""

    rank: tuple[float, float]
    cut: int
    slowest: float
    spent: float


def best_first(ahead: Ahead) -> Iterator[tuple[int, ...]]:
    """The cuts of each split, by period, then latency; those equal to rounding come in no order."""
    unit = max(SAME * float(ahead.period[0][0]), 1e-300)
    places = counter()
    queue: list[tuple[float, float, int, int, tuple[int, ...], _Step, Iterator[_Step]]] = []

    def push(path: tuple[int, ...], steps: Iterator[_Step]) -> None:
        if (step := next(steps, None)) is not None:
            heappush(queue, (*step.rank, -len(path), next(places), path, step, steps))

    push((), iter([_Step((0.0, 0.0), 0, 0.0, 0.0)]))
    while queue:
        *_, path, step, others = heappop(queue)
        push(path, others)
        path = (*path, step.cut)
        if len(path) > len(ahead.levels):
            yield (
                0,
                *(
                    level.after.start + place
                    for level, place in zip(ahead.levels, path[1:], strict=True)
                ),
            )
        else:
            push(path, _steps(ahead, len(path) - 1, step, unit))


def _steps(ahead: Ahead, level: int, before: _Step, unit: float) -> Iterator[_Step]:
    """Where a path may go on from a cut, the most promising first."""
    stages = ahead.levels[level]
    part = slice(stages.first[before.cut], stages.first[before.cut + 1])
    head, load = stages.head[part], stages.load[part]
    slowest, spent = np.maximum(before.slowest, load), before.spent + load
    period = np.rint(np.maximum(slowest, ahead.period[level + 1][head]) / unit)
    latency = np.rint((spent + ahead.latency[level + 1][head]) / unit)
    for n in np.lexsort((latency, period)):
        if period[n] == math.inf:
            return
        rank = float(period[n]), float(latency[n])
        yield _Step(rank, int(head[n]), float(slowest[n]), float(spent[n]))
