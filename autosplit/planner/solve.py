"""What the planner is asked: the best split, the k best, and the nearest legal split to given shares of the work."""

from __future__ import annotations

import math
from dataclasses import replace

from autosplit.cuts import TooManyDownsets
from autosplit.errors import Infeasible
from autosplit.planner.anytime import improve
from autosplit.planner.bounds import simple_bound
from autosplit.planner.chain import Chain, OutOfTime
from autosplit.planner.constraints import FREE, Constraints
from autosplit.planner.costs import CostModel
from autosplit.planner.cut_bound import cut_bound
from autosplit.planner.exact import Found, row_limit, search, start_rows
from autosplit.planner.kbest import best_paths
from autosplit.planner.problem import Deadline, Problem, pose, scale
from autosplit.planner.rows import Words, list_rows
from autosplit.planner.split import Plan


def plan(
    costs: CostModel,
    stages: int,
    *,
    deadline: Deadline | None = None,
    constraints: Constraints = FREE,
    allow_empty: bool = False,
) -> Plan:
    """The split of least period, then least latency, then fewest bytes moved.

    ``deadline`` says true when the time is up: the best split so far is returned, with ``optimal`` false and the lower
    bound proven by then. Raises Infeasible where no split satisfies the constraints.
    """
    problem = pose(costs, stages, constraints, allow_empty=allow_empty)
    first = search(problem, start_rows(problem), None, deadline)
    rows = _rows(problem)
    if rows is None:
        top = math.inf if first.plan is None else first.plan.period
        bound, cheap = cut_bound(problem, simple_bound(problem), top, deadline)
        return _answer(problem, improve(problem, first, bound, cheap, deadline))
    return _answer(problem, search(problem, rows, first.plan, deadline))


def k_best(
    costs: CostModel,
    stages: int,
    k: int,
    *,
    deadline: Deadline | None = None,
    constraints: Constraints = FREE,
    allow_empty: bool = False,
) -> tuple[Plan, ...]:
    """The k best distinct splits in order of period, latency and bytes moved; fewer where there are no more."""
    best = plan(costs, stages, deadline=deadline, constraints=constraints, allow_empty=allow_empty)
    problem = pose(costs, stages, constraints, allow_empty=allow_empty)
    rows = _rows(problem)
    if rows is None or not best.optimal or k < 2:
        return (best,)
    chain = Chain(scale(problem, math.inf), rows, deadline)
    try:
        least = chain.least_period(best.period / chain.scaled.unit + problem.size + 2 * len(problem.producer) + 2)
        paths = best_paths(chain, least[0], k) if least else []
    except OutOfTime:
        return (best,)
    plans = [problem.plan(tuple(cuts)) for cuts in paths]
    plans.sort(key=lambda p: (p.period, p.latency, p.bytes_moved))
    return tuple(replace(p, lower_bound=best.lower_bound, optimal=p.period <= best.period) for p in plans)


def _rows(problem: Problem) -> Words | None:
    """All downsets, None where they are too many to list."""
    try:
        return list_rows(problem.contraction.predecessors, row_limit(problem))
    except TooManyDownsets:
        return None


def _answer(problem: Problem, found: Found) -> Plan:
    if found.plan is None:
        raise Infeasible(
            f"no split into {problem.stages} stages satisfies all constraints and memory limits; loosen one"
        )
    return replace(found.plan, lower_bound=found.bound, optimal=found.proven)
