"""Every stage of a space at once: the best splits for one cost model after another, in milliseconds each.

A stage lies between two nested cuts, and what its transfers cost never changes when op times and overheads are corrected.
So the stages are made once, and a plan is a search over levels of them (``levels``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise

import numpy as np
from numpy.typing import NDArray

from autosplit.cuts import TooManyDownsets, full, members
from autosplit.cuts.stages import Stages
from autosplit.planner import CostModel
from autosplit.planner.batch.best_paths import Ahead, Array, Level, best_first, look
from autosplit.planner.batch.many_costs import SAME, reach, sweep, windows
from autosplit.planner.exact.downset_table import (
    Words,
    from_bits,
    list_rows,
    to_bits,
    to_int,
    to_words,
)
from autosplit.planner.exact.stage_loads import Side, loads
from autosplit.planner.problem.constraints import FREE
from autosplit.planner.problem.problem import Problem, pose, scale

ENTRIES = 4_000_000  # pairs of cuts, over all devices that are not alike
_LARGE = 0.8  # share of the mean stage from which on a single op may decide the period
_FIRST_STEP = 0.01  # how far above its bound the least period is looked for first


@dataclass(frozen=True, eq=False)
class Lattice:
    """All cuts of a space of ``stages`` stages, as bitsets of ops, ordered by the known time of the ops before them.

    So the empty one is the first, the full one the last, and of two nested ones the larger stands later.

    ``inside``: cut by op, 1 where the op lies before the cut. ``moved``: a matrix a device or one for all, cut before by
    cut after: what the stage's transfers cost in ms, infinite where the pair makes no stage that the device can run.
    """

    stages: int
    cuts: tuple[int, ...]
    inside: Array
    moved: tuple[Array, ...]

    def best(self, costs: CostModel, count: int, limit: float = math.inf) -> list[Stages]:
        """The ``count`` best splits under ``costs``, in order of period and latency; fewer where there are no more.

        Only those with a period within ``limit``. ``costs`` differ from those the lattice was made of in times and
        overheads only.
        """
        time = _Time(self, costs)
        ahead = self._grown(time, time.bound if limit == math.inf else limit, 1, limit)
        if not ahead.ways:
            return []
        best = ahead.within(float(ahead.period[0][0]) * (1 + SAME))
        if best.ways < count:
            best = self._grown(time, min(best.limit, limit), count, limit)
        return [self._parts(path) for path in islice(best_first(best), count)]

    def best_of_each(
        self, costs: Sequence[CostModel], limits: Sequence[float]
    ) -> list[Stages | None]:
        """Under each of some costs the most even split of least period; None where that is not below the limit of the costs."""
        found: list[Stages | None] = [None] * len(costs)
        kept = [
            n
            for n, (c, limit) in enumerate(zip(costs, limits, strict=True))
            if self._bound(c) < limit * (1 - SAME)
        ]
        if kept:
            swept = sweep(self.stages, self.inside, self.moved, [costs[n] for n in kept])
            for n, path in zip(
                kept, swept.best(np.array([limits[n] for n in kept]) * (1 - SAME)), strict=True
            ):
                found[n] = self._parts(path) if path else None
        return found

    def _bound(self, costs: CostModel) -> float:
        """No split has a lower period than the least stage with the op that takes longest; 0 where devices differ."""
        if (
            max(len(costs.times), len(costs.overheads), len(self.moved)) > 1
            or math.inf in costs.times[0]
        ):
            return 0.0
        times = np.array(costs.times[0])
        op = int(times.argmax())
        if times[op] < _LARGE * times.sum() / self.stages:
            return 0.0
        before, after = np.flatnonzero(self.inside[:, op] == 0), np.flatnonzero(self.inside[:, op])
        spent = self.inside @ times
        load = self.moved[0][np.ix_(before, after)] + (spent[after] - spent[before, None])
        return float(load.min()) + costs.overheads[0]

    def _grown(self, time: _Time, low: float, count: int, most: float) -> Ahead:
        """The stages within a limit from ``low`` to ``most`` that leave at least ``count`` ways; all where fewer do."""
        most = min(most, time.most)
        limit, step = low * (1 + SAME), _FIRST_STEP
        while (ahead := look(limit, time.levels(limit))).ways < count and limit < most:
            limit, step = min(limit * (1 + step), most), 2 * step
        return ahead

    def _parts(self, path: Sequence[int]) -> Stages:
        return tuple(tuple(members(self.cuts[b] & ~self.cuts[a])) for a, b in pairwise(path))


def lattice(costs: CostModel, stages: int) -> Lattice | None:
    """The lattice of a space without empty stages; None where there are too many cuts to hold it."""
    problem = _posed(costs, stages)
    try:
        words = list_rows(problem.contraction.predecessors, most_cuts(costs, stages))
    except TooManyDownsets:
        return None
    return _over(costs, problem, words)


def most_cuts(costs: CostModel, stages: int) -> int:
    """How many cuts a lattice can hold."""
    return math.isqrt(ENTRIES // (1 if costs.devices is None else stages))


def lattice_of(costs: CostModel, stages: int, cuts: Iterable[int]) -> Lattice:
    """The lattice of some legal cuts only (bitsets of ops), and of the empty and the full one."""
    problem, ops = _posed(costs, stages), len(costs.names)
    inside = to_bits(to_words(sorted({0, full(costs), *cuts}), ops), ops)
    return _over(
        costs,
        problem,
        from_bits(inside[:, [next(members(group)) for group in problem.contraction.groups]]),
    )


def _posed(costs: CostModel, stages: int) -> Problem:
    """The transfers alone: op times and overheads are what gets corrected."""
    free = tuple(tuple(0.0 if t < math.inf else t for t in row) for row in costs.times)
    return pose(replace(costs, times=free, overheads=(0.0,) * len(costs.overheads)), stages, FREE)


def _over(costs: CostModel, problem: Problem, words: Words) -> Lattice:
    """The lattice of some downsets of groups."""
    kinds = 1 if problem.costs.devices is None else problem.stages
    inside = to_bits(words, problem.size)[:, problem.contraction.group_of()]
    order = _in_time(costs, inside)
    words, inside = words[order], inside[order]
    cuts, ops = tuple(map(to_int, from_bits(inside))), inside.astype(np.float64)
    return Lattice(
        problem.stages, cuts, ops, tuple(_moved(problem, words, ops, d) for d in range(kinds))
    )


def _in_time(costs: CostModel, inside: NDArray[np.uint8]) -> list[int]:
    """The places of some cuts ordered by the time of the ops before them, those of equal times by their number."""
    rows = np.array(costs.times)
    times = np.where(np.isfinite(rows), rows, 0.0).mean(axis=0)
    # a sum rounded but once never falls where an op is added
    keys = [(math.fsum(times[held].tolist()), int(held.sum())) for held in inside.astype(bool)]
    return sorted(range(len(inside)), key=keys.__getitem__)


def _moved(problem: Problem, words: Words, inside: Array, device: int) -> Array:
    """What the transfers of all stages on a device cost, from the planner's own arithmetic."""
    scaled = scale(problem, math.inf)
    side = Side(scaled, words, device)
    table = np.full((len(words), len(words)), math.inf)
    for block in loads(scaled, device, side, side, math.inf):
        table[block.left, block.right] = block.load * scaled.unit
    times = problem.costs.times
    unable = inside @ np.isinf(times[device if len(times) > 1 else 0]).astype(np.float64)
    return np.where(unable[None, :] > unable[:, None], math.inf, table)


class _Time:
    """What the stages of a lattice take under some costs; ``before``: per device and cut the time of the ops before it."""

    def __init__(self, lattice: Lattice, costs: CostModel) -> None:
        self.lattice, self.overheads = lattice, costs.overheads
        rows = np.array(costs.times)
        rows = np.where(np.isfinite(rows), rows, 0.0)  # ``moved`` says what cannot be run
        self.before = rows @ lattice.inside.T
        self.differ = max(len(rows), len(self.overheads), len(lattice.moved)) > 1
        least = rows.min(axis=0)
        self.least = lattice.inside @ least
        moved = max(float(m.max(where=np.isfinite(m), initial=0.0)) for m in lattice.moved)
        self.most = float(self.before.max()) + moved + max(costs.overheads)
        self.bound = max(float(least.max()), float(least.sum()) / lattice.stages, SAME * self.most)

    def levels(self, limit: float) -> list[Level]:
        """The stages within a limit between cuts that as many stages as lie before, and behind, can reach within it."""
        ends = windows(self.lattice.stages, self.least[None], np.array([limit]))
        made: dict[
            tuple[int, ...], Level
        ] = {}  # levels between the same cuts are the same for devices that are alike
        found = []
        for stage, (a, b) in enumerate(pairwise(ends)):
            key = (stage * self.differ, a.start, a.stop, b.start, b.stop)
            if key not in made:
                made[key] = self._level(stage, ends, limit)
            found.append(made[key])
        return found

    def _level(self, stage: int, ends: Sequence[slice], limit: float) -> Level:
        a, b = ends[stage], ends[stage + 1]
        before = self.before[stage if len(self.before) > 1 else 0]
        after = before + self.overheads[stage if len(self.overheads) > 1 else 0]
        moved = self.lattice.moved[stage if len(self.lattice.moved) > 1 else 0]
        parts = [(np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros(0))]
        for rows, columns in reach(ends, stage, before[None], np.array([limit])):
            load = moved[rows, columns] + (after[columns] - before[rows, None])
            tail, head = np.nonzero(load <= limit)
            parts.append(
                (tail + (rows.start - a.start), head + (columns.start - b.start), load[tail, head])
            )
        tail, head, load = map(np.concatenate, zip(*parts, strict=True))
        return Level(a, b, tail, head, load)
