"""The best split among the cuts of a table of downsets.

With all downsets in the table it is proven the best of all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from autosplit.cuts.orders import PLAIN_ORDERS
from autosplit.planner.exact.downset_layers import DownsetLayers
from autosplit.planner.exact.downset_table import Words, merge, prefixes, width
from autosplit.planner.exact.dynamic_program import least_latency, least_period
from autosplit.planner.problem.evaluation import Plan
from autosplit.planner.problem.problem import Deadline, OutOfTime, Problem, work_bound
from autosplit.planner.problem.scaling import scale

TABLE_BYTES = 200_000_000  # for a table of downsets and what is stored beside it


@dataclass(frozen=True)
class SearchResult:
    """The best split of a table, None where no path satisfies the constraints.

    ``bound``: no split of the table is better. ``proven``: the split has the least period of the
    table, and where there is no split that is certain too.
    """

    plan: Plan | None
    bound: float
    proven: bool


def row_limit(problem: Problem) -> int:
    """How many downsets are listed at most."""
    return TABLE_BYTES // (8 * width(problem.size) + 4 * (problem.stages + 1) + 32)


def start_rows(problem: Problem) -> Words:
    """The cuts along a few topological orders."""
    before = problem.contraction.predecessors
    return merge(*(prefixes(order_of(before), problem.size) for order_of in PLAIN_ORDERS))


def search(
    problem: Problem,
    words: Words,
    best: Plan | None = None,
    deadline: Deadline | None = None,
    proven: float = 0.0,
    within: float = math.inf,
) -> SearchResult:
    """The best split of a table, by period, then latency, then bytes moved.

    It is never worse than ``best``, a split whose cuts are in the table. Others are looked for with
    a period from the ``proven`` bound to ``within``.
    """
    top = min(within, math.inf if best is None else best.period)
    scaled = scale(problem, top)
    bound = max(max(work_bound(problem), proven) / scaled.unit - problem.size, 0.0)
    try:
        layers = DownsetLayers(scaled, words, deadline)
        least = _least_period(layers, max(bound, layers.windows.bound()))
    except OutOfTime as stop:
        proven = max(bound, stop.bound) * scaled.unit * (1 - 1e-9)
        return SearchResult(best, min(proven, top), False)
    if least is None:
        return SearchResult(best, top, True)
    period, cuts = least
    plan = problem.plan(cuts)
    if best is not None and (best.period, best.latency) < (plan.period, plan.latency):
        plan = best
    # Only the period is proven so far.
    plan = _tie_broken(problem, layers, plan, period)
    return SearchResult(replace(plan, lower_bound=plan.period), plan.period, True)


def _least_period(layers: DownsetLayers, bound: float) -> tuple[float, list[int]] | None:
    """The least period within the scale's limit.

    The limit tried moves away from the bound until a path fits, because a low limit leaves few
    stages to look at.
    """
    top, step = layers.scaled.limit, 0.002
    while True:
        # The step doubles, so that a far period is reached in a few rounds.
        limit = min(top, bound * (1 + step)) if bound > 0 else top
        try:
            least = least_period(layers, limit)
        except OutOfTime as stop:
            stop.bound = bound
            raise
        if least is not None or limit >= top:
            return least
        bound, step = limit, step * 2


def _tie_broken(problem: Problem, layers: DownsetLayers, plan: Plan, period: float) -> Plan:
    """The split of least latency, then fewest bytes moved, among those of the least period."""
    latency = plan.latency / layers.scaled.unit + layers.scaled.rounding * problem.stages
    try:
        cuts = least_latency(layers, period, latency)
    except OutOfTime:
        return plan
    return plan if cuts is None else problem.plan(cuts)
