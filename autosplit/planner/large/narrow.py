"""All cuts that a split of at most some period can have, where all downsets are too many to list.

The cut before stage k holds ops of a time between what the stages after it cannot take and what
those before it can. In a long graph that leaves few ops undecided at each layer, and the downsets
between are few enough to list.
"""

from __future__ import annotations

import numpy as np

from autosplit.cuts import TooManyDownsets, members
from autosplit.planner.exact.downset_table import Words, merge, to_words
from autosplit.planner.large.cut_bound import CutRange, GroupOrder
from autosplit.planner.problem.problem import Deadline, OutOfTime, Problem


def narrow_rows(
    problem: Problem, period: float, limit: int, deadline: Deadline | None
) -> Words | None:
    """The cuts of all splits of at most ``period``, at every layer; None where devices differ.

    Raises:
        TooManyDownsets: There are more than ``limit`` at a layer.
        OutOfTime: The deadline passed.
    """
    if not problem.uniform or not np.isfinite(problem.times).all():
        return None
    order = GroupOrder(problem)
    parts = [to_words([0, problem.whole], problem.size)]
    for k in range(1, problem.stages):
        parts.append(_rows_between(order, order.cut_range(k, period), limit, deadline))
    return merge(*parts)


def _rows_between(order: GroupOrder, cut: CutRange, limit: int, deadline: Deadline | None) -> Words:
    """The downsets of one layer: the groups surely inside, with or without each undecided one."""
    problem, times = order.problem, order.times
    rows = to_words([cut.inside], problem.size)
    time = np.array([sum(times[i] for i in members(cut.inside))])
    undecided = list(members(problem.whole & ~cut.inside & ~cut.outside))
    remaining = sum(times[i] for i in undecided)
    for i in undecided:
        if deadline is not None and deadline():
            raise OutOfTime
        remaining -= times[i]
        required = to_words([problem.contraction.predecessors[i]], problem.size)[0]
        fits = ((rows & required) == required).all(axis=1) & (time + times[i] <= cut.high)
        new = rows[fits]
        new[:, i // 64] |= np.uint64(1 << (i % 64))
        rows = np.concatenate([rows, new])
        time = np.concatenate([time, time[fits] + times[i]])
        # Rows that cannot reach the least time any more are dropped.
        enough = time + remaining >= cut.low
        rows, time = rows[enough], time[enough]
        if len(rows) > limit:
            raise TooManyDownsets(f"more than {limit} cuts lie within the period at one layer")
    return rows
