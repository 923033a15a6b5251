"""The stage times of one table under one or many cost models, and the best split for each model.

Two dynamic programs run from the first stage to the last, on arrays of cost model by cut. The
first gives the least period. The second gives the least sum of squared stage times among the paths
of that period: the most even split of least period, which is the likeliest to keep it if the costs
differ. Stages that are too long are left out in blocks, and so are cuts out of reach.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise

import numpy as np

from autosplit.planner.batch.best_paths import SAME
from autosplit.planner.batch.network import Arcs, Network, collect_arcs
from autosplit.planner.partition.problem import Array, Index
from autosplit.planner.problem.cost_model import CostModel
from autosplit.planner.problem.runtime_costs import of_device

_BLOCK = 32_768  # numbers of a block: about what the caches near a core hold
_FILLED = 0.4  # approximate share of the pairs of cuts that are short enough


@dataclass(frozen=True, eq=False)
class StageTimes:
    """Stage times of a table (see ``StageTable`` for ``transfers``) under some cost models.

    ``before``: per runtime, cost model by device (or one for all) by cut, the time of the ops
    before the cut, in an order in which the larger of two nested cuts stands later; ``least``: cost
    model by cut, the same where each op is fastest; ``overheads``: per runtime, cost model by
    device.
    """

    stages: int
    before: Sequence[Array]
    least: Array
    overheads: Sequence[Array]
    transfers: Sequence[Sequence[Array]]

    def network(self, limit: float) -> Network:
        """The stages within ``limit`` under the only cost model, stored; nodes are cuts."""
        limits = np.array([limit])
        ranges = self._ranges(limits)
        # Stages between the same cuts are the same for equal devices.
        tables = (*self.before, *self.overheads)
        equal = all(len(rows) == 1 for rows in self.transfers)
        equal &= all(table.shape[1] == 1 for table in tables)
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
            before=[before[models] for before in self.before],
            least=self.least[models],
            overheads=[overheads[models] for overheads in self.overheads],
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
        runtimes = list(self._parts(stage))
        width = len(limits) * max(1.0, _FILLED * (heads.stop - heads.start))
        rows = max(1, int(_BLOCK / width))
        for start in range(tails.start, tails.stop, rows):
            part = slice(start, min(start + rows, tails.stop))
            first = max(heads.start, start + 1)
            stop = max(r.last_short(part, slice(first, heads.stop), limits) for r in runtimes)
            if stop > first:
                columns = slice(first, stop)
                yield part, columns, least_table(r.loads(part, columns) for r in runtimes)

    def _most_even(self, limits: Array) -> Index:
        """Cost model by layer: the cuts of the most even path with no stage above the limit."""
        ranges = self._ranges(limits)

        def add_square(load: Array, before: Array) -> None:
            np.copyto(load, math.inf, where=load > limits[:, None, None])
            np.multiply(load, load, out=load)
            load += before

        squares = self._forward(ranges, limits, add_square)
        path = np.zeros((len(limits), self.stages + 1), dtype=np.intp)
        path[:, -1] = self.least.shape[1] - 1
        # From the last cut back: the stage before each cut that has the least sum.
        for stage in reversed(range(self.stages)):
            tails, head = ranges[stage], path[:, stage + 1]
            load = least_table(r.loads_to(tails, head) for r in self._parts(stage))
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

    def _parts(self, stage: int) -> Iterator[_RuntimeTimes]:
        """The times of a stage in each runtime."""
        for before, overheads, transfers in zip(
            self.before, self.overheads, self.transfers, strict=True
        ):
            work = before[:, stage if before.shape[1] > 1 else 0]
            overhead = overheads[:, stage if overheads.shape[1] > 1 else 0, None]
            yield _RuntimeTimes(work, work + overhead, of_device(transfers, stage))


@dataclass(frozen=True, eq=False)
class _RuntimeTimes:
    """One stage in one runtime.

    ``before`` and ``after``: cost model by cut, the times before the first and the last cut of the
    stage; ``transfers``: cut before by cut after.
    """

    before: Array
    after: Array
    transfers: Array

    def last_short(self, rows: slice, heads: slice, limits: Array) -> int:
        """The end of the cuts after that some stage from ``rows`` reaches within its limit."""
        # Cuts are ordered by time, so a stage to a later cut has more work.
        longest = self.before[:, rows].max(axis=1) + limits + SAME * self.before[:, -1]
        short = np.flatnonzero((self.before[:, heads] <= longest[:, None]).any(axis=0))
        return int(heads.start + short[-1] + 1 if len(short) else heads.start)

    def loads(self, rows: slice, columns: slice) -> Array:
        """Cost model by cut before by cut after: the stages of a block."""
        times = self.after[:, None, columns] - self.before[:, rows, None]
        load: Array = self.transfers[rows, columns] + times
        return load

    def loads_to(self, rows: slice, head: Index) -> Array:
        """Cost model by cut before: the stages that end at one cut of each model."""
        reached = np.take_along_axis(self.after, head[:, None], 1)
        load: Array = self.transfers[rows, head].T + (reached - self.before[:, rows])
        return load


def _shifted(part: slice, whole: slice) -> slice:
    """The places of a part of a range in that range."""
    return slice(part.start - whole.start, part.stop - whole.start)


def stage_times(
    stages: int, inside: Array, transfers: Sequence[Sequence[Array]], costs: Sequence[CostModel]
) -> StageTimes:
    """The times of a table (see ``StageTable``) for costs that differ in times and overheads."""
    every_row, overheads = [], []
    for runtimes in zip(*(model.each_runtime for model in costs), strict=True):
        every_row.append(_stacked([r.times for r in runtimes]))
        overheads.append(_stacked([r.overheads for r in runtimes]))
    # The lower bound of any split: each op where it is fastest.
    least = least_table(rows.min(axis=1) for rows in every_row)
    before = [_finite(rows) @ inside.T for rows in every_row]
    return StageTimes(stages, before, _finite(least) @ inside.T, overheads, transfers)


def least_table(tables: Iterable[Array]) -> Array:
    """The elementwise minimum; a table of one row or column stands for all."""
    least: Array = reduce(np.minimum, tables)
    return least


def _finite(times: Array) -> Array:
    """Zero for ops that cannot run: ``transfers`` are infinite there."""
    return np.where(np.isfinite(times), times, 0.0)


def _stacked(tables: Sequence[Sequence[object]]) -> Array:
    """One array of a table for each cost model, with a row for each device."""
    devices = max(map(len, tables))
    arrays = [np.array(table, dtype=np.float64) for table in tables]
    return np.stack([np.broadcast_to(a, (devices, *a.shape[1:])) for a in arrays])
