"""The stage times of one table under one or many cost models, and the best split for each model.

Two dynamic programs run from the first stage to the last, on arrays of cost model by cut. The
first gives the least period. The second gives the least sum of squared stage times among the paths
of that period: the most even split of least period, which is the likeliest to keep it if the costs
differ. Stages that are too long are left out in blocks, and so are cuts out of reach.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from autosplit.planner.batch.best_paths import SAME
from autosplit.planner.exact.layered_search import Arcs, Network, collect_arcs
from autosplit.planner.problem.cost_model import CostModel, of_device
from autosplit.planner.problem.problem import Array, Index

_BLOCK = 32_768  # numbers of a block: about what the caches near a core hold
_FILLED = 0.4  # approximate share of the pairs of cuts that are short enough


@dataclass(frozen=True, eq=False)
class StageTimes:
    """Stage times of a table (see ``StageTable`` for ``transfers``) under some cost models.

    ``before``: cost model by device (or one for all) by cut, the time of the ops before the cut, in
    an order in which the larger of two nested cuts stands later; ``least``: cost model by cut, the
    same on the device that is fastest for each op; ``overheads``: cost model by device.
    """

    stages: int
    before: Array
    least: Array
    overheads: Array
    transfers: Sequence[Array]

    def network(self, limit: float) -> Network:
        """The stages within ``limit`` under the only cost model, stored; nodes are cuts."""
        limits = np.array([limit])
        ranges = self._ranges(limits)
        # Stages between the same cuts are the same for equal devices.
        equal = self.before.shape[1] == self.overheads.shape[1] == len(self.transfers) == 1
        stored: dict[tuple[int, int, int, int, int], int] = {}
        every_arc: list[Arcs] = []
        for stage, (tails, heads) in enumerate(pairwise(ranges)):
            key = (0 if equal else stage, tails.start, tails.stop, heads.start, heads.stop)
            if key in stored:
                every_arc.append(every_arc[stored[key]])
                continue
            stored[key] = stage
            blocks = []
            for rows, columns, load in self._blocks(stage, ranges, limits):
                tail, head = np.nonzero(load[0] <= limit)
                weights = load[:, tail, head]
                tail, head = tail + (rows.start - tails.start), head + columns.start
                blocks.append((tail, head - heads.start, weights))
            every_arc.append(collect_arcs(blocks, tails.stop - tails.start, rows=1))
        return Network([np.arange(r.start, r.stop) for r in ranges], every_arc)

    def best(self, limits: Array) -> list[tuple[int, ...] | None]:
        """For each cost model the cuts of its most even split of least period.

        None where that period is above the limit of the model.
        """
        paths: list[tuple[int, ...] | None] = [None] * len(limits)

        def slowest(load: Array, before: Array) -> None:
            np.maximum(load, before, out=load)

        periods = self._forward(self._ranges(limits), limits, slowest)[-1][:, 0]
        feasible = np.flatnonzero((periods <= limits) & (periods < math.inf))
        if len(feasible):
            part = self._only(feasible)
            cuts = part._most_even(periods[feasible] * (1 + SAME))
            for model, path in zip(feasible.tolist(), cuts.tolist(), strict=True):
                paths[model] = tuple(path)
        return paths

    def _only(self, models: Index) -> StageTimes:
        """Some of the cost models."""
        return replace(
            self,
            before=self.before[models],
            least=self.least[models],
            overheads=self.overheads[models],
        )

    def _ranges(self, limits: Array) -> list[slice]:
        """For each layer the range of cuts that the stages on each side can reach in a limit."""
        whole, limit = self.least[:, -1:], limits[:, None]
        slack = SAME * whole
        ranges = [slice(0, 1)]
        for k in range(1, self.stages):
            reached = self.least <= k * limit + slack
            reached &= whole - self.least <= (self.stages - k) * limit + slack
            cuts = np.flatnonzero(reached.any(axis=0))
            ranges.append(slice(int(cuts[0]), int(cuts[-1]) + 1) if len(cuts) else slice(0, 0))
        last = self.least.shape[1] - 1
        return [*ranges, slice(last, last + 1)]

    def _blocks(
        self, stage: int, ranges: Sequence[slice], limits: Array
    ) -> Iterator[tuple[slice, slice, Array]]:
        """The stages that may be within the limits, as blocks of cuts before by cuts after.

        With each block come the loads, cost model by cut before by cut after.
        """
        tails, heads = ranges[stage], ranges[stage + 1]
        before, after, transfers = self._parts(stage)
        width = len(before) * max(1.0, _FILLED * (heads.stop - heads.start))
        rows = max(1, int(_BLOCK / width))
        for start in range(tails.start, tails.stop, rows):
            stop = min(start + rows, tails.stop)
            first = max(heads.start, start + 1)
            # Cuts are ordered by time, so a stage to a later cut has more work.
            longest = before[:, start:stop].max(axis=1) + limits + SAME * before[:, -1]
            short = np.flatnonzero((before[:, first : heads.stop] <= longest[:, None]).any(axis=0))
            if len(short):
                columns = slice(first, first + int(short[-1]) + 1)
                times = after[:, None, columns] - before[:, start:stop, None]
                yield slice(start, stop), columns, transfers[start:stop, columns] + times

    def _most_even(self, limits: Array) -> Index:
        """Cost model by layer: the cuts of the most even path with no stage above the limit."""
        ranges = self._ranges(limits)

        def add_square(load: Array, before: Array) -> None:
            np.copyto(load, math.inf, where=load > limits[:, None, None])
            np.multiply(load, load, out=load)
            load += before

        squares = self._forward(ranges, limits, add_square)
        path = np.zeros((len(limits), self.stages + 1), dtype=np.intp)
        path[:, -1] = self.before.shape[2] - 1
        # From the last cut back: the stage before each cut that has the least sum.
        for stage in reversed(range(self.stages)):
            tails, head = ranges[stage], path[:, stage + 1]
            before, after, transfers = self._parts(stage)
            reached = np.take_along_axis(after, head[:, None], 1)
            load = transfers[tails, head].T + (reached - before[:, tails])
            total = np.where(load <= limits[:, None], load * load + squares[stage], math.inf)
            path[:, stage] = tails.start + total.argmin(axis=1)
        return path

    def _forward(
        self, ranges: Sequence[slice], limits: Array, join: Callable[[Array, Array], object]
    ) -> list[Array]:
        """Per layer, cost model by cut, the least value of a path to there.

        ``join(load, before)`` changes loads to the values of paths with such a last stage.
        """
        least = [np.zeros((len(limits), 1))]
        for stage, (tails, heads) in enumerate(pairwise(ranges)):
            reached = np.full((len(limits), heads.stop - heads.start), math.inf)
            for rows, columns, load in self._blocks(stage, ranges, limits):
                join(load, least[-1][:, _shifted(rows, tails), None])
                part = reached[:, _shifted(columns, heads)]
                np.minimum(part, load.min(axis=1), out=part)
            least.append(reached)
        return least

    def _parts(self, stage: int) -> tuple[Array, Array, Array]:
        """Of a stage: the times before its first cut, those before its last, the transfers."""
        before = self.before[:, stage if self.before.shape[1] > 1 else 0]
        overhead = self.overheads[:, stage if self.overheads.shape[1] > 1 else 0, None]
        return before, before + overhead, of_device(self.transfers, stage)


def _shifted(part: slice, whole: slice) -> slice:
    """The places of a part of a range in that range."""
    return slice(part.start - whole.start, part.stop - whole.start)


def stage_times(
    stages: int, inside: Array, transfers: Sequence[Array], costs: Sequence[CostModel]
) -> StageTimes:
    """The times of a table (see ``StageTable``) for costs that differ in times and overheads."""
    devices = max(len(c.times) for c in costs)
    rows = np.stack([_with_rows(np.array(c.times, dtype=np.float64), devices) for c in costs])
    # ``transfers`` are infinite where a device cannot run an op.
    rows = np.where(np.isfinite(rows), rows, 0.0)
    places = max(len(c.overheads) for c in costs)
    overheads = np.stack([_with_rows(np.array(c.overheads), places) for c in costs])
    # The lower bound of any split: each op on its fastest device.
    least = rows.min(axis=1) @ inside.T
    return StageTimes(stages, rows @ inside.T, least, overheads, transfers)


def _with_rows(table: Array, devices: int) -> Array:
    """A table with a row for each device."""
    return np.broadcast_to(table, (devices, *table.shape[1:]))
