"""Baselines: simple ways to split, planned with the same cost model for comparison."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from autosplit.cuts import bitset, is_downset, members
from autosplit.cuts.stages import stages_between
from autosplit.deployment import Option, Stage
from autosplit.planner import CostModel, Plan, Question, evaluate, fits
from autosplit.planner.bound import weights_of
from autosplit.planner.cut_set import Words, to_words
from autosplit.planner.moves import spread_places
from autosplit.planner.problem import Deadline, OutOfTime, Problem, problems
from autosplit.planner.search import Search
from autosplit.planner.stage_loads import StageLoads

_BISECTION_GAP = 0.01  # of the period: where a bisection on measured times stops


@dataclass(frozen=True)
class PlannedBaseline:
    """A simple way to split; ``plan`` is None where no split of it fits, and ``note`` tells why.

    ``candidates``: how many stages it would have to build and measure, where it works by measuring.
    """

    name: str
    plan: Plan | None
    candidates: int | None = None
    note: str = ""


def planned_baselines(
    costs: CostModel, kinds: Sequence[str], *, deadline: Deadline | None = None
) -> tuple[PlannedBaseline, ...]:
    """All baselines along the model's own order of ops; groups of ops stay together in each.

    ``kinds``: those of the devices of the stages, each with one row of the costs. Empty where there
    are fewer groups than stages.
    """
    stages = len(kinds)
    if len(costs.contraction.groups) < stages:
        return ()  # some stages are empty, which none of these splits has
    (problem,) = problems(costs, Question.along(kinds))
    asked = _Asked(costs, kinds, problem, deadline)
    groups = problem.contraction.groups
    weights = {
        "equal op count": [float(ops.bit_count()) for ops in groups],
        "equal parameters": [float(size) for size in problem.sizes],
        "equal FLOPs": [sum(map(costs.flops.__getitem__, members(ops))) for ops in groups],
    }
    baselines = [_equal_shares(asked, name, values) for name, values in weights.items()]
    runnable = problem.times[np.isfinite(problem.times).all(axis=1)]
    times = runnable.mean(axis=0).tolist() if len(runnable) else [0.0] * problem.size
    places = spread_places(block_partition(times, stages), problem.size)
    baselines.append(_checked(asked, "block partition by time", places))
    tables = {
        "best over one order": _prefixes(problem),
        "single-tensor cuts": to_words(sorted(_single_tensor_cuts(problem)), problem.size),
    }
    for name, words in tables.items():
        try:
            plan = asked.best(words)
            note = "" if plan else "no such split fits"
        except OutOfTime:
            plan, note = None, "the time was up"
        baselines.append(PlannedBaseline(name, plan, None, note))
    return (*baselines, _bisection(asked))


def bisection(costs: CostModel, kinds: Sequence[str]) -> PlannedBaseline:
    """Coral's bisection alone."""
    (problem,) = problems(costs, Question.along(kinds))
    return _bisection(_Asked(costs, kinds, problem, None))


@dataclass(frozen=True)
class _Asked:
    """Costs and the kinds of the stages' devices, and their contracted problem."""

    costs: CostModel
    kinds: Sequence[str]
    problem: Problem
    deadline: Deadline | None

    @property
    def stages(self) -> int:
        """How many there are."""
        return len(self.kinds)

    def best(self, words: Words) -> Plan | None:
        """The best split between some cuts; None without one. Raises OutOfTime."""
        search = Search(self.problem, words, weights_of(self.problem), self.deadline)
        return search.least_period(search.weights.bound, math.inf)

    def evaluated(self, places: Sequence[int]) -> Plan:
        """The split at some places along the order of the groups."""
        rows = {row.kind: row for row in self.costs.row_index}
        cuts = [self.problem.contraction.expand((1 << place) - 1) for place in places]
        parts = zip(stages_between(self.costs, cuts), self.kinds, strict=True)
        return evaluate(self.costs, [Stage(ops, (Option(rows[kind]),)) for ops, kind in parts])


def _prefixes(problem: Problem) -> Words:
    """The cuts along the order of the groups."""
    return to_words([(1 << place) - 1 for place in range(problem.size + 1)], problem.size)


def _equal_shares(asked: _Asked, name: str, weights: Sequence[float]) -> PlannedBaseline:
    """Cuts where the running sum of weights is nearest to equal shares."""
    if not sum(weights):
        return PlannedBaseline(name, None, None, "unknown for this graph")
    running = np.cumsum([0.0, *weights])
    shares = [running[-1] * n / asked.stages for n in range(1, asked.stages)]
    nearest = [int(np.abs(running - share).argmin()) for share in shares]
    return _checked(asked, name, spread_places(nearest, asked.problem.size))


def _checked(
    asked: _Asked, name: str, places: Sequence[int], candidates: int | None = None
) -> PlannedBaseline:
    plan = asked.evaluated(places)
    if plan.period == math.inf:
        return PlannedBaseline(name, None, candidates, "puts an op on a device that cannot run it")
    if not fits(asked.costs, plan):
        return PlannedBaseline(name, None, candidates, "exceeds the memory of a device")
    return PlannedBaseline(name, plan, candidates)


def block_partition(times: Sequence[float], count: int) -> list[int]:
    """Block partition of a sequence: the ends of the blocks but the last.

    By Bárány and Grinberg (2015), as in torchgpipe. Sums end up within one largest element of each
    other: an element moves towards the smallest block from the side of the largest until they are.
    """
    size = len(times)
    ends = [size * b // count for b in range(count + 1)]
    running = np.cumsum([0.0, *times])
    step = max(times, default=0.0) * (1 + 1e-12)
    for _ in range(size * size * count):
        sums = [float(running[b] - running[a]) for a, b in pairwise(ends)]
        largest = max(range(count), key=sums.__getitem__)
        least = min(sums)
        if sums[largest] <= least + step:
            break
        # Of several smallest blocks the nearest, so that few blocks change.
        smallest_blocks = [block for block in range(count) if sums[block] == least]
        smallest = min(smallest_blocks, key=lambda block: abs(block - largest))
        if largest < smallest:
            ends[smallest] -= 1
        else:
            ends[smallest + 1] += 1
    return ends[1:-1]


def _single_tensor_cuts(problem: Problem) -> set[int]:
    """Cuts that only one tensor crosses.

    They are what stays connected with its producer when the tensor is taken away.
    """
    import networkx as nx

    edges = [
        (producer, group)
        for group, producers in enumerate(problem.contraction.predecessors)
        for producer in members(producers)
    ]
    graph = nx.Graph(edges)
    graph.add_nodes_from(range(problem.size))
    cuts = {0, (1 << problem.size) - 1}
    group_of, counts = problem.contraction.group_of(), Counter[tuple[int, int]]()
    for tensor in problem.costs.tensors:
        if tensor.producer is not None:
            producer = group_of[tensor.producer]
            readers = bitset({group_of[reader] for reader in tensor.consumers} - {producer})
            counts[producer, readers] += 1
    for producer, consumers in zip(problem.producer.tolist(), problem.consumers, strict=True):
        # Merged tensors cross together, so they are more than one.
        if producer < 0 or counts[producer, consumers] > 1:
            continue
        links = [(producer, reader) for reader in members(consumers)]
        graph.remove_edges_from(links)
        side = bitset(nx.node_connected_component(graph, producer))
        graph.add_edges_from(links)
        is_cut = is_downset(problem.contraction, side)
        if _crossing(problem, side) == 1 and not side & consumers and is_cut:
            cuts.add(side)
    return cuts


def _crossing(problem: Problem, cut: int) -> int:
    """The number of (merged) tensors live at a cut."""
    ends = zip(problem.producer.tolist(), problem.consumers, strict=True)
    return sum(p >= 0 and cut >> p & 1 and bool(consumers & ~cut) for p, consumers in ends)


def _bisection(asked: _Asked) -> PlannedBaseline:
    """Coral's profiling partitioner: a bisection on the target time and on each stage's end.

    Each probe of a stage is one that has to be compiled and run; a stage that was probed before is
    not counted again.
    """
    name, problem = "Coral bisection", asked.problem
    loads = StageLoads(problem, _prefixes(problem), weights_of(problem))
    every = np.arange(len(loads))
    rows = range(len(problem.rows))
    by_kind = {problem.rows[row].kind: loads.loads(row, every, every) for row in rows}
    tables = [by_kind[kind] for kind in asked.kinds]
    probed: set[tuple[int, int, int]] = set()

    def probe(stage: int, start: int, end: int) -> float:
        probed.add((stage, start, end))
        return float(tables[stage][start, end])

    low, high = 0.0, loads.top
    best: list[int] | None = None
    # The target moves down while the last stage meets it.
    while high - low > _BISECTION_GAP * high:
        target = (low + high) / 2
        places = _longest_stages(asked, target, probe)
        last = places[-1] if places else 0
        if probe(asked.stages - 1, last, problem.size) <= target:
            best, high = places, target
        else:
            low = target
    if best is None:
        return PlannedBaseline(name, None, len(probed), "no target time was met")
    return _checked(asked, name, best, len(probed))


def _longest_stages(
    asked: _Asked, target: float, probe: Callable[[int, int, int], float]
) -> list[int]:
    """Each stage but the last as long as its time stays within the target, by bisection."""
    places: list[int] = []
    for stage in range(asked.stages - 1):
        start = places[-1] if places else 0
        low, high = start + 1, asked.problem.size - (asked.stages - 1 - stage)
        while low < high:
            middle = (low + high + 1) // 2
            if probe(stage, start, middle) <= target:
                low = middle
            else:
                high = middle - 1
        places.append(low)
    return places
