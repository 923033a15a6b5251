"""All cuts that a split of at most a given period can have, where all downsets are too many to list.

A cut before stage k holds ops of time between what the stages after it cannot take and what those before it can; in a long
graph that leaves few ops undecided at each level, and the downsets between are few enough to list.
"""

from __future__ import annotations

import numpy as np

from autosplit.cuts import TooManyDownsets, members
from autosplit.planner.exact.downset_table import Words, merge, to_words
from autosplit.planner.large.cut_bound import Frame, Level, frame, level_at
from autosplit.planner.problem.problem import Deadline, OutOfTime, Problem


def narrow_rows(
    problem: Problem, period: float, limit: int, deadline: Deadline | None
) -> Words | None:
    """The cuts of all splits of at most ``period``, at every level; None where devices differ.

    Raises TooManyDownsets past ``limit`` rows at a level, OutOfTime at the deadline.
    """
    if not problem.uniform or not np.isfinite(problem.times).all():
        return None
    graph = frame(problem)
    overhead = 0.0 if problem.allow_empty else float(problem.overheads[0])
    parts = [to_words([0, (1 << problem.size) - 1], problem.size)]
    for k in range(1, problem.stages):
        parts.append(_level_rows(graph, level_at(graph, k, period - overhead), limit, deadline))
    return merge(*parts)


def _level_rows(graph: Frame, level: Level, limit: int, deadline: Deadline | None) -> Words:
    """The downsets of one level: from the groups surely inside, each undecided one in turn is added or not."""
    size = graph.size
    rows = to_words([level.inside], size)
    time = np.array([sum(graph.times[i] for i in members(level.inside))])
    undecided = list(members(((1 << size) - 1) & ~level.inside & ~level.outside))
    left = sum(graph.times[i] for i in undecided)
    for i in undecided:
        if deadline is not None and deadline():
            raise OutOfTime
        left -= graph.times[i]
        wanted = to_words([graph.problem.contraction.predecessors[i]], size)[0]
        fits = ((rows & wanted) == wanted).all(axis=1) & (time + graph.times[i] <= level.high)
        new = rows[fits]
        new[:, i // 64] |= np.uint64(1 << (i % 64))
        rows = np.concatenate([rows, new])
        time = np.concatenate([time, time[fits] + graph.times[i]])
        kept = time + left >= level.low
        rows, time = rows[kept], time[kept]
        if len(rows) > limit:
            raise TooManyDownsets(f"more than {limit} cuts lie within the period at one level")
    return rows
