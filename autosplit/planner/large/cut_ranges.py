"""What a period says of each cut, without listing downsets: ops surely before it, surely after it.

The ops before the cut before stage k are on the first k devices, so each at its cheapest weighted
device they take no more than the period, and so do those after it on the others. An op whose
producers alone take more lies after the cut, one whose readers alone take more lies before it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autosplit.cuts import bitset, closures, members
from autosplit.planner.exact.downset_table import to_bits, to_words
from autosplit.planner.problem.problem import Array, Problem

_SLACK = 1 + 1e-9


@dataclass(frozen=True)
class CutRange:
    """One cut: groups surely inside and outside, and what groups of the others it may hold.

    Those inside take ``most`` of ``before`` at most and ``least`` of ``after`` at least. ``sent``
    and ``received``: what a live tensor adds to the loads before and after the cut; ``crossing``:
    how much of either ``most`` and ``least`` have taken into account already.
    """

    inside: int
    outside: int
    before: Array
    after: Array
    most: float
    least: float
    sent: Array
    received: Array
    crossing: tuple[float, float] = (0.0, 0.0)


class CutRanges:
    """The ranges of all cuts of a problem for any period up to ``top``."""

    def __init__(self, problem: Problem, top: float) -> None:
        self.problem = problem
        size, devices = problem.size, range(problem.stages)
        # Both hold the group itself.
        self.below = closures(problem.contraction.predecessors)
        needs = to_bits(to_words(self.below, size), size).astype(np.float64)
        self.above = [bitset(np.flatnonzero(column).tolist()) for column in needs.T]
        # A device that takes longer than any period cannot run an op.
        times = np.where(problem.times > top, math.inf, problem.times)
        layers = [(devices[:k], devices[k:]) for k in range(problem.stages + 1)]
        self.before = [np.minimum(problem.least(times, d), 2 * top) for d, _ in layers]
        self.after = [np.minimum(problem.least(times, d), 2 * top) for _, d in layers]
        self.overheads = [tuple(map(problem.least_overhead, sides)) for sides in layers]
        self.time_below = [needs @ before for before in self.before]
        self.time_above = [needs.T @ after for after in self.after]
        # Without empty stages each side needs a group for each of its stages.
        self.count_below, self.count_above = needs.sum(axis=1), needs.sum(axis=0)

    def at(self, k: int, period: float, transfers: Sequence[float] = (0.0, 0.0)) -> CutRange:
        """What is sure of the cut before stage k in a split of at most ``period``.

        ``transfers``: what the devices before it and those after it spend on them at least.
        """
        p, before, after = self.problem, self.before[k], self.after[k]
        spent = map(float.__add__, self.overheads[k], transfers)
        most, rest = (period * _SLACK - each for each in spent)
        early, late = self.time_above[k] > rest, self.time_below[k] > most
        if not p.allow_empty:
            early |= p.size - self.count_above < k
            late |= self.count_below > p.size - (p.stages - k)
        inside, outside = p.inside[k], p.outside[k]
        for i in np.flatnonzero(early).tolist():
            inside |= self.below[i]
        for i in np.flatnonzero(late).tolist():
            outside |= self.above[i]
        none = np.zeros(len(p.producer))
        return CutRange(inside, outside, before, after, most, float(after.sum()) - rest, none, none)


def total(times: Array, groups: int) -> float:
    """The time of some groups, given as a bitset."""
    return math.fsum(times[i] for i in members(groups))
