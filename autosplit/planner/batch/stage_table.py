"""Every stage of a space at once: the best splits for one cost model after another.

A stage lies between two nested cuts, and what its transfers cost never changes when op times and
overheads are corrected. So the stages are made once, and a plan is a search over layers of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, pairwise

import numpy as np
from numpy.typing import NDArray

from autosplit.cuts import TooManyDownsets, bitset, full, members
from autosplit.cuts.stages import Stages
from autosplit.planner.batch.best_paths import SAME, best_first
from autosplit.planner.batch.many_costs import StageTimes, stage_times
from autosplit.planner.batch.network import Network
from autosplit.planner.partition.bound import weights_of
from autosplit.planner.partition.cut_set import Words, all_cuts, to_bits, to_int, to_words
from autosplit.planner.partition.problem import Array, Problem, Question, problems
from autosplit.planner.partition.stage_loads import StageLoads
from autosplit.planner.problem.cost_model import CostModel
from autosplit.planner.problem.runtime_costs import least_costs
from autosplit.planner.solve import devices_table, kinds_of

ENTRIES = 4_000_000  # pairs of cuts, over all different devices and runtimes
_LARGE = 0.8  # share of the mean stage from which on a single op may decide the period
_FIRST_STEP = 0.01  # how far above its bound the least period is looked for first


@dataclass(frozen=True, eq=False)
class StageTable:
    """All cuts of a space of ``stages`` stages, as bitsets of ops, by the time of the ops before.

    So the empty one is the first, the full one the last, and of two nested ones the larger stands
    later. ``inside``: cut by op, 1 where the op lies before the cut. ``transfers``: per runtime a
    matrix a device or one for all, cut before by cut after: what the stage's transfers cost in ms,
    infinite where the pair makes no stage that the runtime can compute there.
    """

    stages: int
    cuts: tuple[int, ...]
    inside: Array
    transfers: tuple[tuple[Array, ...], ...]

    def best(self, costs: CostModel, count: int) -> list[Stages]:
        """The ``count`` best splits in order of period and latency, fewer where there are no more.

        ``costs`` differ from those the table was made of in times and overheads only.
        """
        times = self._times([costs])
        top = self._longest(costs, times)
        network, paths = _network_with(times, 1, self._work_bound(costs, top), top)
        if not paths:
            return []
        period = float(network.least_to_go(np.maximum)[0][0])
        # Often the splits of least period alone are enough.
        best = network.within(period * (1 + SAME))
        if best.count_paths() < count:
            best, _ = _network_with(times, count, period * (1 + SAME), top)
        return [self._stages(path) for path in islice(best_first(best), count)]

    def best_of_each(
        self, costs: Sequence[CostModel], limits: Sequence[float]
    ) -> list[Stages | None]:
        """Under each of some costs the most even split of least period.

        None where that period is not below the limit of the costs.
        """
        best: list[Stages | None] = [None] * len(costs)
        below = [limit * (1 - SAME) for limit in limits]
        possible = [n for n, c in enumerate(costs) if self._stage_bound(c) < below[n]]
        if possible:
            times = self._times([costs[n] for n in possible])
            paths = times.best(np.array([below[n] for n in possible]))
            for n, path in zip(possible, paths, strict=True):
                if path:
                    best[n] = self._stages(path)
        return best

    def cut_periods(self, costs: CostModel, allow_empty: bool = False) -> dict[int, float]:
        """For each cut between two stages the least period of a split that has it.

        Cuts that no split has are left out.
        """
        times = self._times([costs])
        network = times.network(self._longest(costs, times))
        nodes, layers = network.nodes, range(self.stages)
        before = np.full((self.stages + 1, len(self.cuts)), math.inf)
        after = before.copy()
        before[0, 0] = after[-1, -1] = 0.0
        for start, end, reached, order in ((0, 1, before, layers), (1, 0, after, layers[::-1])):
            for stage in order:
                # The stages of one layer, from either end of the pipeline.
                arcs = network.arcs[stage]
                ends = nodes[stage][arcs.tail], nodes[stage + 1][arcs.head]
                slowest = np.maximum(arcs.load, reached[stage + start, ends[start]])
                if allow_empty:
                    reached[stage + end] = reached[stage + start]
                np.minimum.at(reached[stage + end], ends[end], slowest)
        periods = np.maximum(before, after)[1:-1].min(axis=0, initial=math.inf)
        inner = range(1, len(self.cuts) - 1)
        return {self.cuts[n]: float(periods[n]) for n in inner if periods[n] < math.inf}

    def _longest(self, costs: CostModel, times: StageTimes) -> float:
        """No stage that can be computed takes longer."""
        matrices = chain.from_iterable(self.transfers)
        transfer = max(float(t.max(where=np.isfinite(t), initial=0.0)) for t in matrices)
        overhead = max(max(runtime.overheads) for runtime in costs.each_runtime)
        return max(float(before.max()) for before in times.before) + transfer + overhead

    def _times(self, costs: Sequence[CostModel]) -> StageTimes:
        return stage_times(self.stages, self.inside, self.transfers, costs)

    def _work_bound(self, costs: CostModel, longest: float) -> float:
        """A lower bound of the period by the ops alone, a little above 0 in any case."""
        times = np.array(costs.times)
        least = np.where(np.isfinite(times), times, 0.0).min(axis=0)
        return max(float(least.max()), float(least.sum()) / self.stages, SAME * longest)

    def _stage_bound(self, costs: CostModel) -> float:
        """A lower bound of the period: the least stage with the op that takes longest.

        It is 0 where devices or runtimes differ, or no op may decide the period.
        """
        kinds = (costs.times, costs.overheads, self.transfers, *self.transfers)
        if max(map(len, kinds)) > 1 or math.inf in costs.times[0]:
            return 0.0
        times = np.array(costs.times[0])
        op = int(times.argmax())
        # A small op is shared out among the stages.
        if times[op] < _LARGE * times.sum() / self.stages:
            return 0.0
        before, after = np.flatnonzero(self.inside[:, op] == 0), np.flatnonzero(self.inside[:, op])
        spent = self.inside @ times
        load = self.transfers[0][0][np.ix_(before, after)] + (spent[after] - spent[before, None])
        return float(load.min()) + costs.overheads[0]

    def _stages(self, path: Sequence[int]) -> Stages:
        cuts = [self.cuts[place] for place in path]
        return tuple(tuple(members(after & ~before)) for before, after in pairwise(cuts))


def all_stages(costs: CostModel, stages: int) -> StageTable | None:
    """The table of a space without empty stages; None where there are too many cuts to hold it."""
    problem, kinds = _transfer_problem(costs, stages)
    try:
        words = all_cuts(problem.contraction.predecessors, most_cuts(costs, stages))
    except TooManyDownsets:
        return None
    return _table(costs, problem, kinds, words)


def most_cuts(costs: CostModel, stages: int) -> int:
    """How many cuts a table can hold."""
    matrices = len(costs.each_runtime) * (1 if costs.devices is None else stages)
    return math.isqrt(ENTRIES // matrices)


def stages_between(costs: CostModel, stages: int, cuts: Iterable[int]) -> StageTable:
    """The table of some legal cuts (bitsets of ops), and of the empty and the full one."""
    problem, kinds = _transfer_problem(costs, stages)
    group_of = problem.contraction.group_of()
    every_cut = sorted({0, full(costs), *cuts})
    # A legal cut holds all ops of a group or none.
    groups = [bitset(group_of[op] for op in members(cut)) for cut in every_cut]
    return _table(costs, problem, kinds, to_words(groups, problem.size))


def _network_with(times: StageTimes, count: int, low: float, top: float) -> tuple[Network, float]:
    """The stages within a limit from ``low`` to ``top`` with ``count`` paths, and how many."""
    limit, step = low * (1 + SAME), _FIRST_STEP
    while True:
        network = times.network(limit)
        paths = network.count_paths()
        if paths >= count or limit >= top:
            return network, paths
        limit, step = min(limit * (1 + step), top), 2 * step


def _transfer_problem(costs: CostModel, stages: int) -> tuple[Problem, list[str]]:
    """The transfers alone, and the kinds of the devices.

    Op times and overheads are what gets corrected.
    """
    runtimes = []
    for runtime in costs.each_runtime:
        times = np.where(np.isinf(runtime.times), math.inf, 0.0).tolist()
        no_overheads = (0.0,) * len(runtime.overheads)
        rows = tuple(map(tuple, times))
        runtimes.append(replace(runtime, times=rows, overheads=no_overheads))
    if costs.runtimes:
        times, overheads = least_costs(runtimes)
    else:
        times, overheads = runtimes[0].times, runtimes[0].overheads
    transfers = replace(
        costs,
        times=times,
        overheads=overheads,
        runtimes=tuple(runtimes) if costs.runtimes else (),
        memory=costs.memory,
    )
    kinds = [str(kind) for kind in kinds_of(transfers, stages)]
    # A row for each runtime and kind of device; the loads of a row are transfers.
    question = Question({kind: kinds.count(kind) for kind in dict.fromkeys(kinds)})
    (problem,) = problems(devices_table(transfers, kinds), question)
    return problem, kinds


def _table(costs: CostModel, problem: Problem, kinds: Sequence[str], words: Words) -> StageTable:
    """The table of some downsets of groups."""
    loads = StageLoads(problem, words, weights_of(problem))
    inside = to_bits(loads.words, problem.size)[:, problem.contraction.group_of()]
    # The searches leave out whole blocks of stages by this order.
    order = np.array(_order_by_time(costs, inside), dtype=np.intp)
    transfers = []
    for runtime in costs.each_runtime:
        rows = {}
        for number, row in enumerate(problem.rows):
            if row.runtime == runtime.name:
                rows[row.kind] = loads.loads(number, order, order)
        along = [rows[kind] for kind in kinds]
        transfers.append(tuple(along[:1] if len(rows) == 1 else along))
    cuts = [problem.contraction.expand(to_int(word)) for word in loads.words[order]]
    ops = inside[order].astype(np.float64)
    return StageTable(len(kinds), tuple(cuts), ops, tuple(transfers))


def _order_by_time(costs: CostModel, inside: NDArray[np.uint8]) -> list[int]:
    """The order of some cuts by the time of the ops before them, then by their number."""
    rows = np.array(costs.times)
    times = np.where(np.isfinite(rows), rows, 0.0).mean(axis=0)
    # A sum that is rounded only once never falls when an op is added.
    keys = [(math.fsum(times[cut].tolist()), int(cut.sum())) for cut in inside.astype(bool)]
    return sorted(range(len(inside)), key=keys.__getitem__)
