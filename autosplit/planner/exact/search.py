"""The best split among the cuts of a table of downsets; with all of them in the table it is proven the best of all."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from autosplit.planner.exact.downset_table import Words, merge, prefixes, width
from autosplit.planner.exact.dynamic_program import Chain
from autosplit.planner.large import orders
from autosplit.planner.large.simple_bound import simple_bound
from autosplit.planner.problem.evaluation import Plan
from autosplit.planner.problem.problem import Deadline, OutOfTime, Problem, scale

_BYTES = 200_000_000  # for a table of downsets and what is kept beside it


@dataclass(frozen=True)
class Found:
    """The best split of a table, None where no chain satisfies the constraints; ``bound``: none of the table is better.

    ``proven``: the split has the least period of the table, and where the table holds none that is certain too.
    """

    plan: Plan | None
    bound: float
    proven: bool


def row_limit(problem: Problem) -> int:
    """How many downsets are listed at most."""
    return _BYTES // (8 * width(problem.size) + 4 * (problem.stages + 1) + 32)


def start_rows(problem: Problem) -> Words:
    """The cuts along a few topological orders."""
    before = problem.contraction.predecessors
    makers = (orders.given, orders.depth_first, orders.breadth_first, orders.backwards)
    return merge(*(prefixes(make(before), problem.size) for make in makers))


def search(
    problem: Problem, words: Words, best: Plan | None = None, deadline: Deadline | None = None
) -> Found:
    """The best chain of a table, by period, then latency, then bytes moved; never worse than ``best``, one of its
    chains.
    """
    scaled = scale(problem, math.inf if best is None else best.period)
    bound = max(simple_bound(problem) / scaled.unit - problem.size, 0.0)
    try:
        chain = Chain(scaled, words, deadline)
        least = _least_period(chain, max(bound, chain.bound()))
    except OutOfTime as stop:
        return Found(
            best,
            min(
                max(bound, stop.bound) * scaled.unit * (1 - 1e-9),
                math.inf if best is None else best.period,
            ),
            False,
        )
    if least is None:
        return Found(best, math.inf if best is None else best.period, True)
    period, cuts = least
    plan = problem.plan(tuple(cuts))
    if best is not None and (best.period, best.latency) < (plan.period, plan.latency):
        plan = best
    plan = _tie_broken(problem, chain, plan, period)
    return Found(replace(plan, lower_bound=plan.period), plan.period, True)


def _least_period(chain: Chain, bound: float) -> tuple[float, list[int]] | None:
    """The least period within the scale's limit; the limit tried moves away from the bound until one fits."""
    top, step = chain.scaled.limit, 0.002
    while True:
        limit = min(top, bound * (1 + step)) if bound > 0 else top
        try:
            found = chain.least_period(limit)
        except OutOfTime as stop:
            stop.bound = bound
            raise
        if found is not None or limit >= top:
            return found
        bound, step = limit, step * 2


def _tie_broken(problem: Problem, chain: Chain, plan: Plan, period: float) -> Plan:
    """The split of least latency, then fewest bytes moved, among those of the least period."""
    latency = plan.latency / chain.scaled.unit + chain.scaled.rounding * problem.stages
    try:
        found = chain.least_latency(period, latency)
    except OutOfTime:
        return plan
    return plan if found is None else problem.plan(tuple(found[2]))
