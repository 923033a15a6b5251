"""A lower bound of the period that counts transfers, without listing downsets.

In a split of period P into K stages the cut before stage k holds ops of time between S - (K-k) P and k P, which decides
for many ops on which side they lie. All loads together are S plus, for each tensor that crosses a cut, at least one sending
and one receiving; a tensor's cost is shared out over the cuts it may cross. What is left for each cut is a minimum cut in
a flow network (a downset is a closure: Picard 1976), with a multiplier for the time that must lie before it. P is
possible only if the sum stays within K P.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autosplit.cuts import bitset, members
from autosplit.planner.large.min_cut import Network
from autosplit.planner.problem.problem import Deadline, Problem

_STEPS = 10
_SECANTS = 4


@dataclass(frozen=True)
class Frame:
    """The parts of a problem the bound needs: times and transfer costs of groups, what lies before and after each."""

    problem: Problem
    times: list[float]
    costs: list[float]
    below: list[int]
    above: list[int]
    time_below: list[float]
    time_above: list[float]
    cheap: set[int]

    @property
    def size(self) -> int:
        """The number of groups."""
        return len(self.times)


@dataclass(frozen=True)
class Level:
    """One cut: groups surely inside and outside, and the least and most time that lies before it."""

    inside: int
    outside: int
    low: float
    high: float


def cut_bound(
    problem: Problem, low: float, high: float, deadline: Deadline | None = None
) -> tuple[float, frozenset[int]]:
    """The largest P found in [low, high] such that every period is at least P; ``low`` must be proven already.

    With it come the minimum cuts met on the way, bitsets of groups: cheap places to cut. Only for devices that cost the
    same; others keep ``low``.
    """
    if (
        not problem.uniform
        or not low < high
        or high == math.inf
        or not math.isfinite(problem.times.sum())
    ):
        return low, frozenset()
    graph = frame(problem)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if high - low <= 1e-3 * high or (deadline is not None and deadline()):
            break
        proven = _least_sum(graph, middle, deadline)
        if proven > middle * (1 + 1e-9):
            low = middle
        else:
            high = middle
    return low, frozenset(graph.cheap)


def frame(problem: Problem) -> Frame:
    """What the bound needs of a problem with devices that cost the same."""
    before = problem.contraction.predecessors
    times = [float(t) for t in problem.times[0]]
    below, above = [0] * len(before), [0] * len(before)
    for i, producers in enumerate(before):
        below[i] = 1 << i
        for p in members(producers):
            below[i] |= below[p]
    for i, closure in enumerate(below):
        for p in members(closure):
            above[p] |= 1 << i
    costs = [
        float(s + r) if maker >= 0 else 0.0
        for s, r, maker in zip(problem.send[0], problem.receive[0], problem.producer, strict=True)
    ]
    time_below, time_above = (
        [math.fsum(times[i] for i in members(b)) for b in bits] for bits in (below, above)
    )
    return Frame(problem, times, costs, below, above, time_below, time_above, set())


def _least_sum(graph: Frame, period: float, deadline: Deadline | None) -> float:
    """A bound of the mean load of splits of at most this period; infinite where there is none."""
    k = graph.problem.stages
    overhead = 0.0 if graph.problem.allow_empty else float(graph.problem.overheads[0])
    levels = [level_at(graph, n, period - overhead) for n in range(1, k)]
    if any(level.inside & level.outside for level in levels):
        return math.inf
    crossed = [
        [n for n, level in enumerate(levels) if _may_cross(graph, t, level)]
        for t in range(len(graph.costs))
    ]
    work = math.fsum(graph.times) + k * overhead
    best = work / k
    for shares in (_even, _last, _first):
        if best > period or (deadline is not None and deadline()):
            break
        total = work
        for n, level in enumerate(levels):
            weights = [
                cost * shares(where, n) for cost, where in zip(graph.costs, crossed, strict=True)
            ]
            total += _least_cut(graph, level, weights)
            if total / k > period * (1 + 1e-9):
                break
        best = max(best, total / k)
    return best


def _even(where: Sequence[int], level: int) -> float:
    return 1 / len(where) if level in where else 0.0


def _last(where: Sequence[int], level: int) -> float:
    return float(bool(where) and where[-1] == level)


def _first(where: Sequence[int], level: int) -> float:
    return float(bool(where) and where[0] == level)


def level_at(graph: Frame, k: int, period: float) -> Level:
    """What is sure of the cut before stage k in a split whose stages take at most ``period``, overhead left out."""
    p = graph.problem
    work, slack = math.fsum(graph.times), 1e-9 * math.fsum(graph.times)
    low, high = work - (p.stages - k) * period - slack, k * period + slack
    inside, outside = p.inside[k], p.outside[k]
    for i in range(graph.size):
        few = not p.allow_empty and graph.size - graph.above[i].bit_count() < k
        many = not p.allow_empty and graph.below[i].bit_count() > graph.size - (p.stages - k)
        if few or work - graph.time_above[i] < low:
            inside |= graph.below[i]
        if many or graph.time_below[i] > high:
            outside |= graph.above[i]
    return Level(inside, outside, low, high)


def _may_cross(graph: Frame, t: int, level: Level) -> bool:
    maker = graph.problem.producer[t]
    return (
        maker >= 0
        and not level.outside >> maker & 1
        and bool(graph.problem.consumers[t] & ~level.inside)
    )


def _least_cut(graph: Frame, level: Level, weights: Sequence[float]) -> float:
    """A lower bound of the weights of live tensors over all downsets of the level, by multipliers of the time before."""
    value, time = _solve(graph, level, weights, 0.0)
    if level.low <= time <= level.high:
        return value
    sign, wanted = (1.0, level.low) if time < level.low else (-1.0, level.high)
    extreme = ((1 << graph.size) - 1) & ~level.outside if sign > 0 else level.inside
    near = (value, time)
    far = (_weight(graph, weights, extreme), math.fsum(graph.times[i] for i in members(extreme)))
    best = value
    for _ in range(_SECANTS):
        if sign * (far[1] - wanted) < 0 or far[1] == near[1] or far[0] <= near[0]:
            break
        slope = abs((far[0] - near[0]) / (far[1] - near[1]))
        found, time = _solve(graph, level, weights, sign * slope)
        best = max(best, found + sign * slope * wanted)
        point = (found + sign * slope * time, time)
        if found >= near[0] - sign * slope * near[1] - 1e-9 * abs(near[0] + 1):
            break
        near, far = (point, far) if sign * (time - wanted) < 0 else (near, point)
    return best


def _weight(graph: Frame, weights: Sequence[float], downset: int) -> float:
    p = graph.problem
    return math.fsum(
        w
        for w, maker, readers in zip(weights, p.producer, p.consumers, strict=True)
        if maker >= 0 and downset >> maker & 1 and readers & ~downset
    )


def _solve(
    graph: Frame, level: Level, weights: Sequence[float], reward: float
) -> tuple[float, float]:
    """min over downsets B of weights(live(B)) - reward * time(B), and the time of a B that has it."""
    p, n = graph.problem, graph.size
    source, sink = n, n + 1
    node = [
        source if level.inside >> i & 1 else sink if level.outside >> i & 1 else i for i in range(n)
    ]
    heavy = [t for t, w in enumerate(weights) if w > 0 and p.producer[t] >= 0]
    network = Network(n + 2 + len(heavy))
    constant = 0.0
    for i in range(n):
        gain = reward * graph.times[i]
        if node[i] == source:
            constant -= gain
        elif node[i] != sink:
            if gain > 0:
                network.add(source, i, gain)
                constant -= gain
            elif gain < 0:
                network.add(i, sink, -gain)
            for q in members(p.contraction.predecessors[i] & ~level.inside):
                network.add(i, node[q], math.inf)
    for extra, t in enumerate(heavy, n + 2):
        _add_tensor(
            network,
            node[p.producer[t]],
            {node[c] for c in members(p.consumers[t])},
            weights[t],
            extra,
            sink,
        )
    value, side = network.minimum_cut(source, sink)
    found = [i for i in range(n) if node[i] == source or (node[i] != sink and side[i])]
    graph.cheap.add(bitset(found))
    return value + constant, math.fsum(graph.times[i] for i in found)


def _add_tensor(
    network: Network, maker: int, readers: set[int], weight: float, extra: int, sink: int
) -> None:
    """The weight is cut where the maker is inside and some reader is not."""
    if maker == sink or readers == {maker}:
        return
    network.add(maker, extra, weight)
    for reader in readers:
        network.add(extra, reader, math.inf)
