"""All cuts that a split of at most some period can have, where all downsets are too many to list.

The cut before stage k holds ops of a time between what the stages after it cannot take and what
those before it can. In a long graph that leaves few ops undecided at each layer, and the downsets
between are few enough to list.
"""

from __future__ import annotations

import numpy as np

from autosplit.cuts import TooManyDownsets, members
from autosplit.planner.exact.downset_table import Words, merge, to_words
from autosplit.planner.large.cut_ranges import CutRange, CutRanges, total
from autosplit.planner.problem.problem import Deadline, OutOfTime, Problem


def narrow_rows(problem: Problem, period: float, limit: int, deadline: Deadline | None) -> Words:
    """The cuts of all splits of at most ``period``, at every layer.

    Raises:
        TooManyDownsets: There are more than ``limit`` at a layer.
        OutOfTime: The deadline passed.
    """
    ranges = CutRanges(problem, period)
    parts = [to_words([0, problem.whole], problem.size)]
    for k in range(1, problem.stages):
        parts.append(_rows_between(problem, ranges.at(k, period), limit, deadline))
    return merge(*parts)


def _rows_between(problem: Problem, cut: CutRange, limit: int, deadline: Deadline | None) -> Words:
    """The downsets of one layer: the groups surely inside, with or without each undecided one."""
    rows = to_words([cut.inside], problem.size)
    undecided = list(members(problem.whole & ~cut.inside & ~cut.outside))
    before = np.full(len(rows), total(cut.before, cut.inside))
    # With all groups that may still follow.
    after = np.full(len(rows), total(cut.after, problem.whole & ~cut.outside))
    for i in undecided:
        if deadline is not None and deadline():
            raise OutOfTime
        required = to_words([problem.contraction.predecessors[i]], problem.size)[0]
        fits = ((rows & required) == required).all(axis=1) & (before + cut.before[i] <= cut.most)
        # Rows that cannot reach the least time any more are dropped.
        enough = after - cut.after[i] >= cut.least
        new = rows[fits]
        new[:, i // 64] |= np.uint64(1 << (i % 64))
        rows = np.concatenate([rows[enough], new])
        before = np.concatenate([before[enough], before[fits] + cut.before[i]])
        after = np.concatenate([after[enough] - cut.after[i], after[fits]])
        if len(rows) > limit:
            raise TooManyDownsets(f"more than {limit} cuts lie within the period at one layer")
    return rows
