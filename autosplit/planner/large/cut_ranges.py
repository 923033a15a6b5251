"""The ops that must lie before or after each cut in a split of a given period.

No downsets are listed. The ops before the cut of stage k run on the first k devices, so the sum of
their least weighted times there is at most the period. The same holds for the ops after the cut and
the other devices. An op lies after the cut if it and all that it needs take longer than that, and
before the cut if it and all that need it do.
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
    """What is known of one cut.

    ``inside`` and ``outside``: bitsets of the groups that must lie before and after it; ``before``
    and ``after``: the least time of each group on either side. The groups before the cut have a sum
    of ``before`` of at most ``most``, and a sum of ``after`` of at least ``least``. ``sent`` and
    ``received``: what a live tensor adds to the loads before and after the cut; ``crossing``: how
    much of the two is already part of ``most`` and ``least``.
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
        """What is known of the cut before stage k in a split of at most ``period``.

        ``transfers``: the least time that the devices before and after the cut spend on transfers.
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
