"""A lower bound of the period that counts transfers, without listing downsets.

In a split of period P into K stages the cut before stage k holds ops of time between S - (K-k) P
and k P, which decides for many ops on which side they lie. All loads together are S plus, for each
tensor that crosses a cut, at least one sending and one receiving; a tensor's cost is shared out
over the cuts it may cross. What is left for each cut is a minimum cut in a flow network (a downset
is a closure: Picard 1976), with a multiplier for the time that must lie before it. P is possible
only if the sum stays within K P.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autosplit.cuts import bitset, closures, members
from autosplit.planner.large.min_cut import FlowNetwork
from autosplit.planner.problem.problem import Deadline, Problem

_BISECTIONS = 10
_SECANTS = 4


@dataclass(frozen=True)
class CutRange:
    """One cut: groups surely inside and outside, and the least and most time before it."""

    inside: int
    outside: int
    low: float
    high: float


class GroupOrder:
    """What lies before and after each group of a problem with equal devices, and its time."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.times = [float(t) for t in problem.times[0]]
        self.work = math.fsum(self.times)
        self.overhead = 0.0 if problem.allow_empty else float(problem.overheads[0])
        # Both hold the group itself.
        self.below = closures(problem.contraction.predecessors)
        self.above = [0] * problem.size
        for i, closure in enumerate(self.below):
            for p in members(closure):
                self.above[p] |= 1 << i
        self.time_below = [self.time_of(groups) for groups in self.below]
        self.time_above = [self.time_of(groups) for groups in self.above]

    def time_of(self, groups: int) -> float:
        """The time of some groups."""
        return math.fsum(self.times[i] for i in members(groups))

    def cut_range(self, k: int, period: float) -> CutRange:
        """What is sure of the cut before stage k in a split of at most ``period``."""
        p = self.problem
        longest, slack = period - self.overhead, 1e-9 * self.work
        low, high = self.work - (p.stages - k) * longest - slack, k * longest + slack
        inside, outside = p.inside[k], p.outside[k]
        for i in range(p.size):
            # Without empty stages each side needs a group for each of its stages.
            few = not p.allow_empty and p.size - self.above[i].bit_count() < k
            many = not p.allow_empty and self.below[i].bit_count() > p.size - (p.stages - k)
            if few or self.work - self.time_above[i] < low:
                inside |= self.below[i]
            if many or self.time_below[i] > high:
                outside |= self.above[i]
        return CutRange(inside, outside, low, high)


def cut_bound(
    problem: Problem, low: float, high: float, deadline: Deadline | None = None
) -> tuple[float, frozenset[int]]:
    """The largest P in [low, high] such that every period is proven to be at least P.

    ``low`` must be proven already. With it come the minimum cuts met on the way, bitsets of groups:
    cheap places to cut. Only for equal devices; others leave ``low``.
    """
    finite = high < math.inf and math.isfinite(problem.times.sum())
    if not problem.uniform or not low < high or not finite:
        return low, frozenset()
    search = _BoundSearch(problem, deadline)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        # A tighter bound is not worth the time.
        if high - low <= 1e-3 * high or search.timed_out():
            break
        if search.least_mean_load(middle) > middle * (1 + 1e-9):
            low = middle
        else:
            high = middle
    return low, frozenset(search.cheap)


class _BoundSearch:
    """Bounds of one problem for several periods; ``cheap``: the minimum cuts met on the way."""

    def __init__(self, problem: Problem, deadline: Deadline | None) -> None:
        self.problem, self.deadline = problem, deadline
        self.order = GroupOrder(problem)
        transfers = problem.send[0] + problem.receive[0]
        self.costs = [float(cost) for cost in transfers * problem.produced]
        self.cheap: set[int] = set()

    def timed_out(self) -> bool:
        return self.deadline is not None and self.deadline()

    def least_mean_load(self, period: float) -> float:
        """A bound of the mean load of splits of at most this period; infinite without any."""
        stages = self.problem.stages
        cuts = [self.order.cut_range(k, period) for k in range(1, stages)]
        if any(cut.inside & cut.outside for cut in cuts):
            return math.inf
        crossed: list[list[int]] = [[] for _ in self.costs]
        for t, where in enumerate(crossed):
            where += [n for n, cut in enumerate(cuts) if self._may_cross(t, cut)]
        work = self.order.work + stages * self.order.overhead
        best = work / stages
        # How a tensor's cost is shared out over the cuts it may cross: evenly, all to the last,
        # all to the first. Each is a bound.
        for share in (_even, _last, _first):
            if best > period or self.timed_out():
                break
            total = work
            for n, cut in enumerate(cuts):
                weights = [
                    cost * share(where, n) for cost, where in zip(self.costs, crossed, strict=True)
                ]
                total += self._least_cut(cut, weights)
                if total / stages > period * (1 + 1e-9):
                    break
            best = max(best, total / stages)
        return best

    def _may_cross(self, t: int, cut: CutRange) -> bool:
        producer, consumers = self.problem.producer[t], self.problem.consumers[t]
        if producer < 0 or cut.outside >> producer & 1:
            return False
        return bool(consumers & ~cut.inside)

    def _least_cut(self, cut: CutRange, weights: Sequence[float]) -> float:
        """A lower bound of the weights of live tensors over all downsets of a range.

        The time before the cut is a side condition with a Lagrange multiplier, raised by secants.
        """
        value, time = self._minimum(cut, weights, 0.0)
        if cut.low <= time <= cut.high:
            return value
        if time < cut.low:
            sign, bound, extreme = 1.0, cut.low, self.problem.whole & ~cut.outside
        else:
            sign, bound, extreme = -1.0, cut.high, cut.inside
        near = (value, time)
        far = (self._weight(weights, extreme), self.order.time_of(extreme))
        best = value
        for _ in range(_SECANTS):
            if sign * (far[1] - bound) < 0 or far[1] == near[1] or far[0] <= near[0]:
                break
            slope = abs((far[0] - near[0]) / (far[1] - near[1]))
            value, time = self._minimum(cut, weights, sign * slope)
            best = max(best, value + sign * slope * bound)
            # No downset lies below the line through the two points: the multiplier is the best.
            if value >= near[0] - sign * slope * near[1] - 1e-9 * abs(near[0] + 1):
                break
            point = (value + sign * slope * time, time)
            if sign * (time - bound) < 0:
                near = point
            else:
                far = point
        return best

    def _weight(self, weights: Sequence[float], downset: int) -> float:
        p = self.problem
        live = []
        for weight, producer, consumers in zip(weights, p.producer, p.consumers, strict=True):
            if producer >= 0 and downset >> producer & 1 and consumers & ~downset:
                live.append(weight)
        return math.fsum(live)

    def _minimum(
        self, cut: CutRange, weights: Sequence[float], reward: float
    ) -> tuple[float, float]:
        """min over downsets B of weights(live(B)) - reward * time(B), and the time of such a B."""
        p, size = self.problem, self.problem.size
        source, sink = size, size + 1
        node = list(range(size))
        # Groups on a sure side are merged with the source or the sink.
        for i in members(cut.outside):
            node[i] = sink
        for i in members(cut.inside):
            node[i] = source
        # A node for each tensor, so that its weight is cut once for all its readers.
        weighted = [t for t, w in enumerate(weights) if w > 0 and p.producer[t] >= 0]
        network = FlowNetwork(size + 2 + len(weighted))
        constant = 0.0
        for i in range(size):
            gain = reward * self.order.times[i]
            if node[i] == source:
                constant -= gain
            elif node[i] != sink:
                if gain > 0:
                    network.add(source, i, gain)
                    constant -= gain
                elif gain < 0:
                    network.add(i, sink, -gain)
                # A group inside takes its producers with it.
                for q in members(p.contraction.predecessors[i] & ~cut.inside):
                    network.add(i, node[q], math.inf)
        for extra, t in enumerate(weighted, size + 2):
            producer, readers = node[p.producer[t]], {node[c] for c in members(p.consumers[t])}
            # The weight is cut where the producer is inside and some reader is not.
            if producer != sink and readers != {producer}:
                network.add(producer, extra, weights[t])
                for reader in readers:
                    network.add(extra, reader, math.inf)
        value, side = network.minimum_cut(source, sink)
        inside = [i for i in range(size) if node[i] == source or (node[i] != sink and side[i])]
        self.cheap.add(bitset(inside))
        return value + constant, math.fsum(self.order.times[i] for i in inside)


def _even(crossed: Sequence[int], cut: int) -> float:
    return 1 / len(crossed) if cut in crossed else 0.0


def _last(crossed: Sequence[int], cut: int) -> float:
    return float(bool(crossed) and crossed[-1] == cut)


def _first(crossed: Sequence[int], cut: int) -> float:
    return float(bool(crossed) and crossed[0] == cut)
