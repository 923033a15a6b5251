"""A lower bound of the period that counts transfers, without listing downsets.

A period says for many ops on which side of each cut they lie (``cut_ranges``). The weighted mean
of the loads is at least that of the ops, each at its cheapest weighted device, plus, for each
tensor that crosses a cut, one sending and one receiving; its cost is shared out over the cuts that
it may cross. What is left for each cut is a minimum cut in a flow network (a downset is a closure:
Picard 1976), with a multiplier for the time that must lie before it. A period is possible only if
the sum stays within it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autosplit.cuts import bitset, members
from autosplit.planner.large.cut_ranges import CutRange, CutRanges, total
from autosplit.planner.large.min_cut import FlowNetwork
from autosplit.planner.problem.problem import Array, Deadline, Problem
from autosplit.planner.problem.shares import device_shares

_BISECTIONS = 10
_SECANTS = 4
SWEEPS = 3


def cut_bound(
    problem: Problem,
    low: float,
    high: float,
    deadline: Deadline | None = None,
    sweeps: int = SWEEPS,
) -> tuple[float, frozenset[int]]:
    """The largest P in [low, high] such that every period is proven to be at least P.

    ``low`` must be proven already. With it come the minimum cuts met on the way, bitsets of groups:
    cheap places to cut. ``sweeps`` as in ``CutSearch``.
    """
    if not low < high < math.inf:
        return low, frozenset()
    search = CutSearch(problem, high, deadline, sweeps)
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


@dataclass(frozen=True)
class _Transfers:
    """Bounds of what transfers cost, at all cuts and at one; ``weights``: of each tensor there."""

    least: float
    of_cut: float
    weights: Array


class CutSearch:
    """Minimum cuts of one problem for periods up to ``top``; ``cheap``: those met on the way.

    So many ``sweeps`` take the transfers on each side of a cut from the time for its ops.
    """

    def __init__(
        self, problem: Problem, top: float, deadline: Deadline | None, sweeps: int = SWEEPS
    ) -> None:
        self.problem, self.deadline, self.sweeps = problem, deadline, sweeps
        self.ranges = CutRanges(problem, top)
        self.cheap: set[int] = set()

    def timed_out(self) -> bool:
        """Whether the deadline passed."""
        return self.deadline is not None and self.deadline()

    def cuts(self, period: float) -> list[CutRange]:
        """What is sure of each cut in a split of at most ``period``.

        What the devices before a cut spend on transfers at least leaves them less time for ops.
        That decides on more of these, and so what transfers cost, so it is done some times over.
        """
        places = range(1, self.problem.stages)
        cuts = [self.ranges.at(k, period) for k in places]
        for _ in range(self.sweeps):
            if self.timed_out() or any(cut.inside & cut.outside for cut in cuts):
                break
            crossed, narrower = self._crossed(cuts), []
            for k in places:
                before = self._transfers(cuts, crossed, range(k), k - 1)
                after = self._transfers(cuts, crossed, range(k, self.problem.stages), k - 1)
                cut = self.ranges.at(k, period, (before.least, after.least))
                crossing = before.of_cut, after.of_cut
                narrower.append(
                    replace(cut, sent=before.weights, received=after.weights, crossing=crossing)
                )
            cuts = narrower
        return cuts

    def _transfers(
        self, cuts: Sequence[CutRange], crossed: NDArray[np.bool_], devices: range, cut: int
    ) -> _Transfers:
        """What transfers add to the mean load of the devices on one side of a cut, at least."""
        # The cuts between and beside them; other devices count for nothing.
        some = slice(max(devices.start - 1, 0), devices.stop)
        shares = np.zeros(self.problem.stages)
        shares[devices.start : devices.stop] = self.problem.shares(devices)
        rows = np.zeros_like(crossed)
        rows[some] = crossed[some]
        weights = self._weights(shares, rows, rows)
        of_cut = self._least_cuts(cuts[cut : cut + 1], weights[cut : cut + 1], math.inf)
        others = self._least_cuts(
            [*cuts[:cut], *cuts[cut + 1 :]], np.delete(weights, cut, 0), math.inf
        )
        return _Transfers(of_cut + others, of_cut, weights[cut])

    def _least_cuts(self, cuts: Sequence[CutRange], weights: Array, most: float) -> float:
        """The sum of ``_least_cut`` over the cuts, or enough of it to exceed ``most``."""
        sum_of_cuts = 0.0
        for cut, row in zip(cuts, weights, strict=True):
            if row.any() and sum_of_cuts <= most:
                sum_of_cuts += self._least_cut(cut, row.tolist())
        return sum_of_cuts

    def least_mean_load(self, period: float) -> float:
        """A bound of the mean load of splits of at most this period; infinite without any."""
        cuts = self.cuts(period)
        if any(cut.inside & cut.outside for cut in cuts):
            return math.inf
        shares, work = self._work(cuts, period)
        best = work
        crossed = self._crossed(cuts)
        # How a tensor's cost is shared out over the cuts it may cross: evenly, all to the last,
        # all to the first. Each is a bound.
        last = crossed & (np.cumsum(crossed[::-1], axis=0)[::-1] == 1)
        first = crossed & (np.cumsum(crossed, axis=0) == 1)
        for parts in (crossed, last, first):
            if best > period or self.timed_out():
                break
            weights = self._weights(shares, crossed, parts)
            most = period * (1 + 1e-9) - work
            best = max(best, work + self._least_cuts(cuts, weights, most))
        return best

    def _work(self, cuts: Sequence[CutRange], period: float) -> tuple[Array, float]:
        """Weights of the devices, and a bound of the mean load without transfers."""
        p, devices = self.problem, range(self.problem.stages)
        times = np.array(p.rows(p.times, devices))
        times[times > period] = math.inf
        for k, cut in enumerate(cuts, 1):
            times[k:, list(members(cut.inside))] = math.inf
            times[:k, list(members(cut.outside))] = math.inf
        overheads = np.zeros(p.stages) if p.allow_empty else p.rows(p.overheads, devices)
        shares = p.shares(devices) if p.uniform else device_shares(times, overheads)
        return shares, float((times * shares[:, None]).min(axis=0).sum() + shares @ overheads)

    def _crossed(self, cuts: Sequence[CutRange]) -> NDArray[np.bool_]:
        """Cut by tensor: which tensors may cross which cut."""
        p = self.problem
        crossed = np.zeros((len(cuts), len(p.producer)), dtype=bool)
        for row, cut in zip(crossed, cuts, strict=True):
            for t, (producer, readers) in enumerate(zip(p.producer, p.consumers, strict=True)):
                row[t] = producer >= 0 and not cut.outside >> producer & 1 and readers & ~cut.inside
        return crossed

    def _weights(
        self, shares: Array, crossed: NDArray[np.bool_], parts: NDArray[np.bool_]
    ) -> Array:
        """Cut by tensor: costs in proportion to ``parts``.

        The cuts that a tensor crosses have no more than the device before the first of them spends
        on sending it, and the one after the last on receiving it.
        """
        p, devices = self.problem, range(self.problem.stages)
        sent = p.rows(p.send, devices) * shares[:, None]
        received = p.rows(p.receive, devices) * shares[:, None]
        most = np.full(crossed.shape[1], math.inf)
        for first in range(len(parts)):
            for last in range(first, len(parts)):
                number = parts[first : last + 1].sum(axis=0)
                possible = np.flatnonzero((number > 0) & crossed[first : last + 1].all(axis=0))
                cost = (sent[first] + received[last + 1])[possible]
                most[possible] = np.minimum(most[possible], cost / number[possible])
        return np.where(parts, most, 0.0)

    def _least_cut(self, cut: CutRange, weights: Sequence[float]) -> float:
        """A lower bound of the weights of live tensors over all downsets of a range.

        The time before the cut is a side condition with a Lagrange multiplier, raised by secants.
        """
        value, inside = self._minimum(cut, weights, 0.0 * cut.after)
        if total(cut.after, inside) < cut.least:
            sign, times, bound = 1.0, cut.after, cut.least
            extreme = self.problem.whole & ~cut.outside
        elif total(cut.before, inside) > cut.most:
            sign, times, bound, extreme = -1.0, cut.before, cut.most, cut.inside
        else:
            return value
        near = (value, total(times, inside))
        far = (self._weight(weights, extreme), total(times, extreme))
        best = value
        for _ in range(_SECANTS):
            if sign * (far[1] - bound) < 0 or far[1] == near[1] or far[0] <= near[0]:
                break
            slope = abs((far[0] - near[0]) / (far[1] - near[1]))
            value, inside = self._minimum(cut, weights, sign * slope * times)
            time = total(times, inside)
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
        self, cut: CutRange, weights: Sequence[float], rewards: Array
    ) -> tuple[float, int]:
        """min over downsets B of weights(live(B)) - rewards(B), and such a B."""
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
        for i, gain in enumerate(rewards.tolist()):
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
        inside = bitset(
            i for i in range(size) if node[i] == source or (node[i] != sink and side[i])
        )
        self.cheap.add(inside)
        return value + constant, inside
