"""The best split of a lattice for each of many cost models, in one sweep for all of them.

Two dynamic programmes from the first stage to the last, on arrays of cost model by cut: the least period of a path to each
cut, then the least sum of squared stage times of one whose stages keep to the least period of all: the most even split of
least period, the likeliest to keep it should the costs be others. Stages that are too long are passed over in blocks
(``reach``), and so are cuts that too few stages lie before or behind (``windows``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from autosplit.planner import CostModel

Array = NDArray[np.float64]
Index = NDArray[np.intp]

SAME = 1e-9  # relative difference below which times count as equal
_BLOCK = 32_768  # numbers looked at together, about what the caches near a core hold
_FILLED = 0.4  # share of the pairs of cuts that are short enough, about


def reach(
    ends: Sequence[slice], stage: int, before: Array, limits: Array
) -> list[tuple[slice, slice]]:
    """The stages of a level that may be within the limits, as blocks of cuts before by cuts after.

    ``ends``: for each level the cuts where its stages begin; ``before``: cost model by cut, the time of the ops before it,
    cuts in an order in which the larger of two nested ones stands later. ``limits``: one a cost model.
    """
    a, b = ends[stage], ends[stage + 1]
    rows = max(1, int(_BLOCK / (len(before) * max(1.0, _FILLED * (b.stop - b.start)))))
    found = []
    for start in range(a.start, a.stop, rows):
        stop = min(start + rows, a.stop)
        first = max(b.start, start + 1)
        longest = before[:, start:stop].max(axis=1) + limits + SAME * before[:, -1]
        near = np.flatnonzero((before[:, first : b.stop] <= longest[:, None]).any(axis=0))
        if len(near):
            found.append((slice(start, stop), slice(first, first + int(near[-1]) + 1)))
    return found


def windows(stages: int, least: Array, limits: Array) -> list[slice]:
    """For each level the range of cuts that as many stages as lie before, and behind, can reach within a limit.

    ``least``: cost model by cut, the least time that the ops before it take on any device.
    """
    whole = least[:, -1:]
    slack, limit = SAME * whole, limits[:, None]
    found = [slice(0, 1)]
    for k in range(1, stages):
        within = (least <= k * limit + slack) & (whole - least <= (stages - k) * limit + slack)
        near = np.flatnonzero(within.any(axis=0))
        found.append(slice(int(near[0]), int(near[-1]) + 1) if len(near) else slice(0, 0))
    return [*found, slice(least.shape[1] - 1, least.shape[1])]


@dataclass(frozen=True, eq=False)
class Sweep:
    """Some cost models of one lattice. ``before``: cost model by device (or one for all) by cut, the time of the ops before it.

    ``least`` the same on the device that is fastest for each op; ``overheads``: cost model by device; ``moved`` as in Lattice.
    """

    stages: int
    before: Array
    least: Array
    overheads: Array
    moved: Sequence[Array]

    def only(self, kept: Index) -> Sweep:
        """Some of the cost models."""
        return Sweep(
            self.stages, self.before[kept], self.least[kept], self.overheads[kept], self.moved
        )

    def best(self, limits: Array) -> list[tuple[int, ...] | None]:
        """For each cost model the cuts of its most even split of least period; None where the period is above its limit."""
        found: list[tuple[int, ...] | None] = [None] * len(limits)
        if not len(limits):
            return found
        periods = self._forward(limits, np.maximum)[-1][:, 0]
        kept = np.flatnonzero((periods <= limits) & (periods < math.inf))
        if len(kept):
            part, least = self.only(kept), periods[kept] * (1 + SAME)
            for n, cuts in zip(kept.tolist(), part._back(least).tolist(), strict=True):
                found[n] = tuple(cuts)
        return found

    def _back(self, limits: Array) -> Index:
        """Cost model by end of a stage: the cuts of the most even path with no stage above the limit."""
        ends = windows(self.stages, self.least, limits)
        squares = self._forward(limits, None)
        path = np.zeros((len(limits), self.stages + 1), dtype=np.intp)
        path[:, -1] = self.before.shape[2] - 1
        for stage in reversed(range(self.stages)):
            a, b = ends[stage], path[:, stage + 1]
            before, overhead, moved = self._of(stage)
            reached = np.take_along_axis(before, b[:, None], 1) + overhead
            load = moved[a, b].T + (reached - before[:, a])
            uneven = np.where(load <= limits[:, None], load * load + squares[stage], math.inf)
            path[:, stage] = a.start + uneven.argmin(axis=1)
        return path

    def _forward(self, limits: Array, join: Callable[..., Array] | None) -> list[Array]:
        """For each level, cost model by cut of its window: the least ``join`` of the stages up to there.

        Without one it is the sum of their squares, where only stages within the limits count.
        """
        ends = windows(self.stages, self.least, limits)
        known = [np.zeros((len(limits), 1))]
        for stage, (a, b) in enumerate(pairwise(ends)):
            before, overhead, moved = self._of(stage)
            after = before + overhead
            found = np.full((len(limits), b.stop - b.start), math.inf)
            for rows, columns in reach(ends, stage, before, limits):
                load = moved[rows, columns] + (after[:, None, columns] - before[:, rows, None])
                so_far = known[-1][:, rows.start - a.start : rows.stop - a.start, None]
                if join is None:
                    np.copyto(load, math.inf, where=load > limits[:, None, None])
                    np.multiply(load, load, out=load)
                    load += so_far
                else:
                    join(load, so_far, out=load)
                part = found[:, columns.start - b.start : columns.stop - b.start]
                np.minimum(part, load.min(axis=1), out=part)
            known.append(found)
        return known

    def _of(self, stage: int) -> tuple[Array, Array, Array]:
        """What the stages of a level are made of: the times before each cut, the overhead, the transfers."""
        device = stage if self.before.shape[1] > 1 else 0
        overhead = self.overheads[:, stage if self.overheads.shape[1] > 1 else 0, None]
        return self.before[:, device], overhead, self.moved[stage if len(self.moved) > 1 else 0]


def sweep(stages: int, inside: Array, moved: Sequence[Array], costs: Sequence[CostModel]) -> Sweep:
    """The sweep over a lattice (see there for ``inside`` and ``moved``) for costs that differ in times and overheads only."""
    devices = max(len(c.times) for c in costs)
    rows = np.array(
        [c.times if len(c.times) == devices else c.times * devices for c in costs], dtype=np.float64
    )
    rows = np.where(np.isfinite(rows), rows, 0.0)  # ``moved`` says what cannot be run
    places = max(len(c.overheads) for c in costs)
    overheads = [c.overheads if len(c.overheads) == places else c.overheads * places for c in costs]
    return Sweep(stages, rows @ inside.T, rows.min(axis=1) @ inside.T, np.array(overheads), moved)
