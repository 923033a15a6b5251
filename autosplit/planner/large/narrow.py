"""All cuts that a split of at most some period can have, where all downsets are too many to list.

The cut before stage k holds ops of a time between what the stages after it cannot take and what
those before it can, and its live tensors take time from both. In a long graph that leaves few ops
undecided at each layer, and the downsets between are few enough to list.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from autosplit.cuts import TooManyDownsets, bitset, members
from autosplit.planner.exact.downset_table import Words, merge, to_words
from autosplit.planner.large.cut_bound import CutSearch
from autosplit.planner.large.cut_ranges import CutRange, total
from autosplit.planner.problem.problem import Array, Deadline, OutOfTime, Problem


def narrow_rows(problem: Problem, period: float, limit: int, deadline: Deadline | None) -> Words:
    """The cuts of all splits of at most ``period``, at every layer.

    Raises:
        TooManyDownsets: There are more than ``limit`` at a layer.
        OutOfTime: The deadline passed.
    """
    parts = [to_words([0, problem.whole], problem.size)]
    for cut in CutSearch(problem, period, deadline).cuts(period):
        parts.append(_rows_between(problem, cut, limit, deadline))
    return merge(*parts)


def _rows_between(problem: Problem, cut: CutRange, limit: int, deadline: Deadline | None) -> Words:
    """The downsets of one layer: the groups surely inside, with or without each undecided one."""
    tensors = _Tensors(problem, cut)
    rows = to_words([cut.inside], problem.size)
    sent, received = tensors.sure(members(cut.inside))
    before = np.array([total(cut.before, cut.inside) + sent])
    # With all groups that may still follow.
    after = np.array([total(cut.after, problem.whole & ~cut.outside) - received])
    most, least = cut.most + cut.crossing[0], cut.least - cut.crossing[1]
    for i in members(problem.whole & ~cut.inside & ~cut.outside):
        if deadline is not None and deadline():
            raise OutOfTime
        sent, received = tensors.sure([i])
        with_i = before + cut.before[i] + sent, after - received
        holds = _holds(rows, problem.contraction.predecessors[i], problem.size)
        fits = holds & (with_i[0] <= most) & (with_i[1] >= least)
        new = rows[fits]
        new[:, i // 64] |= np.uint64(1 << (i % 64))
        without = tensors.without(rows, i)
        sides = before + without[0], after - cut.after[i] - without[1]
        # Rows that cannot reach the least time any more are dropped.
        enough = (sides[0] <= most) & (sides[1] >= least)
        rows = np.concatenate([rows[enough], new])
        before, after = (
            np.concatenate([side[enough], other[fits]])
            for side, other in zip(sides, with_i, strict=True)
        )
        if len(rows) > limit:
            raise TooManyDownsets(f"more than {limit} cuts lie within the period at one layer")
    return rows


class _Tensors:
    """What the tensors that are surely live at a cut add to the loads before and after it."""

    def __init__(self, problem: Problem, cut: CutRange) -> None:
        self.problem, self.cut = problem, cut
        self.costly = np.flatnonzero((cut.sent > 0) | (cut.received > 0)).tolist()

    def sure(self, producers: Iterable[int]) -> tuple[float, float]:
        """Of tensors with a reader surely after the cut, if their producers lie before it."""
        groups, p = bitset(producers), self.problem
        live = []
        for t in self.costly:
            if groups >> p.producer[t] & 1 and p.consumers[t] & self.cut.outside:
                live.append(t)
        return float(self.cut.sent[live].sum()), float(self.cut.received[live].sum())

    def without(self, rows: Words, group: int) -> tuple[Array, Array]:
        """Of tensors whose first reader after the cut is a group, at each row."""
        p, sums = self.problem, (np.zeros(len(rows)), np.zeros(len(rows)))
        for t in self.costly:
            readers = p.consumers[t]
            if readers >> group & 1 and not readers & self.cut.outside:
                earlier = readers & ((1 << group) - 1)
                live = _holds(rows, earlier | 1 << p.producer[t], p.size)
                sums[0][live] += self.cut.sent[t]
                sums[1][live] += self.cut.received[t]
        return sums


def _holds(rows: Words, groups: int, size: int) -> NDArray[np.bool_]:
    """Which rows hold all of some groups."""
    required = to_words([groups], size)[0]
    holds: NDArray[np.bool_] = ((rows & required) == required).all(axis=1)
    return holds
