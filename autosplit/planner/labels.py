"""The k best deployments, and the Pareto front of period and latency, by label setting.

A label is a partial path with its period and latency so far. Among the labels at one cut with the
same devices taken, a label that k others beat or equal in both values leads to none of the k best
deployments (multi-criteria shortest paths, Martins 1984).
"""

from __future__ import annotations

import math
from dataclasses import replace
from heapq import heappush, heapreplace
from itertools import pairwise

import numpy as np

from autosplit.planner import cut_set
from autosplit.planner.costs import CostModel
from autosplit.planner.evaluation import Plan
from autosplit.planner.problem import SAME, Array, Deadline, Index, OutOfTime, Question, Step
from autosplit.planner.search import PathStage, Search
from autosplit.planner.solver import Solution, solve

MOST_LABELS = 1_000_000  # of all cuts
_MOST_WAITING = 20 * MOST_LABELS  # that may turn out to be worth extending
# The limits of the period that are tried for further plans, as multiples of the least period.
_LIMITS = (1.0, 1.02, 1.2, 2.0, 64.0, math.inf)

# Cut, label before, step, period and latency of some labels.
_Columns = tuple[Index, Index, Index, Array, Array]


class TooManyLabels(Exception):
    """Too many partial paths are worth extending to store them; caught in this module."""


def k_best(
    costs: CostModel, question: Question, k: int, *, deadline: Deadline | None = None
) -> tuple[Plan, ...]:
    """The k best plans in order of period, latency and bytes moved, fewer where there are no more.

    The ``note`` of the first plan says if a limit or the deadline left out further plans. Raises
    as ``partition``.
    """
    best, solutions = solve(costs, question, deadline)
    notes = [best.note]
    plans: list[Plan] = []
    try:
        for factor in _LIMITS:
            limit = math.inf if factor == math.inf else best.period * factor
            plans = _plans(best, solutions, limit, k, deadline)[:k]
            if len(plans) == k:
                break
    except OutOfTime:
        notes.append("the time was up before all further plans were found")
    except TooManyLabels:
        notes.append("there are too many further plans to list")
    bound = best.lower_bound
    proven = [
        replace(p, lower_bound=bound, optimal=best.optimal and p.period <= best.period * (1 + SAME))
        for p in plans or [best]
    ]
    return (replace(proven[0], note="; ".join(filter(None, notes))), *proven[1:])


def front(
    costs: CostModel, question: Question, *, deadline: Deadline | None = None
) -> tuple[tuple[Plan, ...], bool]:
    """A plan for each point of the Pareto front of period and latency, and whether these are all.

    The plans are in order of period. Raises as ``partition``.
    """
    best, solutions = solve(costs, question, deadline)
    all_listed = all(s.words is not None and s.problem.mixes is not None for s in solutions)
    plans, complete = [best], best.optimal and all_listed
    try:
        plans = _plans(best, solutions, math.inf, 1, deadline)
    except (OutOfTime, TooManyLabels):
        complete = False
    points: list[Plan] = []
    for plan in plans:
        if not points or plan.latency < points[-1].latency * (1 - SAME):
            points.append(plan)
    return tuple(points), complete


def _plans(
    best: Plan, solutions: list[Solution], limit: float, k: int, deadline: Deadline | None
) -> list[Plan]:
    """The plans within a period that fewer than k others beat in period and latency, by rank."""
    # Where not all cuts are listed, the best plan was searched among more of them than these.
    plans = [best] if any(solution.words is None for solution in solutions) else []
    for solution in solutions:
        words = cut_set.along_orders(solution.problem) if solution.words is None else solution.words
        search = Search(solution.problem, words, solution.weights, deadline, limit)
        plans += [search.plan(path) for path in _Labels(search, limit, k).paths()]
    distinct = {plan.stages: plan for plan in plans}
    return sorted(distinct.values(), key=lambda plan: plan.rank)


class _Labels:
    """Labels of all states and cuts within a limit of the period."""

    def __init__(self, search: Search, limit: float, k: int) -> None:
        self.search, self.k = search, k
        self.limit = min(limit, search.loads.top) * (1 + SAME)
        self.problem = search.problem
        self.windows = search.windows(self.limit)
        self.steps: list[Step] = []
        self.stored: list[_Columns] = []
        self.count = self.waiting = 0

    def paths(self) -> list[list[PathStage]]:
        """The path of each label at the full cut, in any order."""
        waiting: dict[int, list[_Columns]] = {}
        zero, none = np.zeros(1, dtype=np.intp), np.zeros(1)
        waiting[0], self.waiting = [(zero, zero - 1, zero - 1, none, none)], 1
        ends: list[int] = []
        for state in range(len(self.windows)):
            if state not in waiting:
                continue
            columns = [np.concatenate(part) for part in zip(*waiting.pop(state), strict=True)]
            self.waiting -= len(columns[0])
            chosen = self._worth_extending(*columns)
            first = self.count
            self._store(chosen)
            if state in self.problem.targets:
                full = np.flatnonzero(chosen[0] == len(self.search.loads) - 1)
                ends += (first + full).tolist()
            self._extend(state, first, chosen, waiting)
        return [self._path(end) for end in ends]

    def _store(self, columns: _Columns) -> None:
        self.stored.append(columns)
        self.count += len(columns[0])
        if self.count > MOST_LABELS:
            raise TooManyLabels

    def _worth_extending(
        self, cut: Index, parent: Index, step: Index, period: Array, latency: Array
    ) -> _Columns:
        """The labels to each cut that fewer than k others beat or equal in period and latency."""
        order = np.lexsort((latency, period, parent, cut))
        if not self.problem.question.replicas:
            # Where several rows of a stage take the same device, only the fastest row counts.
            again = (np.diff(cut[order], prepend=-1) == 0) & (
                np.diff(parent[order], prepend=-2) == 0
            )
            order = order[~again]
        order = order[np.lexsort((latency[order], period[order], cut[order]))]
        bounds = np.flatnonzero(np.diff(cut[order], prepend=-1, append=-1))
        chosen: list[int] = []
        for a, b in pairwise(bounds.tolist()):
            least: list[float] = []  # the k least latencies so far, negated, as a heap
            for label, value in zip(order[a:b].tolist(), latency[order[a:b]].tolist(), strict=True):
                if len(least) < self.k:
                    heappush(least, -value)
                    chosen.append(label)
                elif value < -least[0]:
                    heapreplace(least, -value)
                    chosen.append(label)
        where = np.array(chosen, dtype=np.intp)
        return cut[where], parent[where], step[where], period[where], latency[where]

    def _extend(
        self, state: int, first: int, labels: _Columns, waiting: dict[int, list[_Columns]]
    ) -> None:
        """Extend the labels of a state by each stage that may follow."""
        cut, _, _, period, latency = labels
        if not len(cut):
            return
        starts = np.searchsorted(cut, np.unique(cut))
        counts = np.diff(starts, append=len(cut))
        for block in self.search.blocks(state, cut[starts], self.windows, (0.0, self.limit)):
            place = np.searchsorted(cut[starts], block.tails)
            tail, head = np.nonzero(block.periods <= self.limit)
            # Every label at a tail is extended by every stage from there.
            each = counts[place[tail]]
            label = np.repeat(starts[place[tail]], each)
            label += np.arange(len(label)) - np.repeat(np.cumsum(each) - each, each)
            tail, head = np.repeat(tail, each), np.repeat(head, each)
            self.waiting += len(label)
            if len(label) + self.count > MOST_LABELS or self.waiting > _MOST_WAITING:
                raise TooManyLabels
            columns = (
                block.heads[head],
                first + label,
                np.full(len(label), len(self.steps), dtype=np.intp),
                np.maximum(period[label], block.periods[tail, head]),
                latency[label] + self.search.latencies(block)[tail, head],
            )
            waiting.setdefault(block.step.state, []).append(columns)
            self.steps.append(block.step)
        for step in self.problem.steps(state):
            if not step.rows:
                unused = np.full(len(cut), len(self.steps), dtype=np.intp)
                places = first + np.arange(len(cut))
                waiting.setdefault(step.state, []).append((cut, places, unused, period, latency))
                self.waiting += len(cut)
                self.steps.append(step)

    def _path(self, label: int) -> list[PathStage]:
        cut, parent, step = (
            np.concatenate([columns[n] for columns in self.stored]) for n in range(3)
        )
        path = []
        while parent[label] >= 0:
            taken, start = self.steps[step[label]], int(cut[parent[label]])
            if taken.rows:
                path.append(PathStage(taken, start, int(cut[label])))
            label = int(parent[label])
        return path[::-1]
