"""The questions to the planner: best split, k best, least latency within a period, Pareto front."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from autosplit.cuts import TooManyDownsets
from autosplit.errors import ConfigError, Infeasible
from autosplit.planner.exact import dynamic_program
from autosplit.planner.exact.downset_layers import DownsetLayers, TooManyStages
from autosplit.planner.exact.downset_table import Words, list_rows, merge, prefixes, to_words
from autosplit.planner.exact.k_best import best_paths
from autosplit.planner.exact.pareto import front
from autosplit.planner.exact.search import SearchResult, row_limit, search, start_rows
from autosplit.planner.explain import explained
from autosplit.planner.near_orders import improve
from autosplit.planner.problem.constraints import FREE, Constraints
from autosplit.planner.problem.cost_model import CostModel
from autosplit.planner.problem.evaluation import Plan
from autosplit.planner.problem.problem import (
    Deadline,
    NotFound,
    OutOfTime,
    Problem,
    pose,
    work_bound,
)
from autosplit.planner.problem.scaling import scale

# Rounds without a better split: before the search over all cuts, and where they are too many.
_QUICK_ROUNDS, _PATIENT_ROUNDS = 4, 24
LARGE_TABLE = 200_000  # cuts from which on a quick search among some of them comes first
# How far above the least period the front is looked for: less where the stages are too many.
# Costs that forbid an edge would round all others away, so that lists begin with low limits.
_LIST_LIMITS = (2.0, 64.0, math.inf)
_COARSE = 1e-6  # of the period: costs rounded to more tell too little
_FRONT_LIMITS = (math.inf, 1.5, 1.1, 1.02, 1.005, 1.0)


P = TypeVar("P", bound=Plan)


@dataclass(frozen=True)
class Front(Generic[P]):
    """Splits or deployments that no other beats in period, latency and peak memory at once.

    ``complete``: every such point is there.
    """

    plans: tuple[P, ...]
    complete: bool
    note: str = ""


def plan(
    costs: CostModel,
    stages: int,
    *,
    deadline: Deadline | None = None,
    constraints: Constraints = FREE,
    allow_empty: bool = False,
) -> Plan:
    """The split of least period, then least latency, then fewest bytes moved.

    ``deadline`` returns true when the time is up: the best split so far is returned, with
    ``optimal`` false and the lower bound proven by then.

    Raises:
        Infeasible: No split satisfies the constraints; the message names some that clash.
    """
    problem = _posed(costs, stages, constraints, allow_empty)
    return _solve(problem, constraints, costs, deadline)[0]


def k_best(
    costs: CostModel,
    stages: int,
    k: int,
    *,
    deadline: Deadline | None = None,
    constraints: Constraints = FREE,
    allow_empty: bool = False,
    empty_last: bool = False,
) -> tuple[Plan, ...]:
    """The k best distinct splits in order of period, latency and bytes moved, or all if fewer.

    ``empty_last`` allows empty stages after all others only, so that no split is listed twice where
    devices are equal. ``note`` of the first tells where a limit or the deadline left it at fewer,
    or at splits along a few op orders.

    Raises:
        Infeasible: As ``plan``.
        ConfigError: ``k`` is below 1.
    """
    if k < 1:
        raise ConfigError(f"k is {k}; give at least 1")
    problem = _posed(costs, stages, constraints, allow_empty or empty_last)
    problem = replace(problem, empty_last=empty_last)
    best, rows = _solve(problem, constraints, costs, deadline)
    if k == 1:
        return (best,)
    words, plans = _table(problem, rows, best), list[Plan]()
    try:
        for factor in _LIST_LIMITS:
            scaled = scale(problem, best.period * factor)
            layers = DownsetLayers(scaled, words, deadline)
            # The period of the best split, up to rounding.
            limit = best.period / scaled.unit + scaled.rounding
            least = dynamic_program.least_period(layers, limit)
            paths = best_paths(layers, least[0], k) if least else []
            # Sorted by exact costs: in units, splits within rounding may change places.
            plans = sorted((problem.plan(cuts) for cuts in paths), key=lambda plan: plan.rank)
            if len(plans) == k and plans[-1].period <= best.period * factor:
                break
    except OutOfTime:
        return (noted(best, "the time was up before further splits were found"),)
    except TooManyStages as error:
        return (noted(best, str(error)),)
    plans = [
        replace(p, lower_bound=best.lower_bound, optimal=best.optimal and p.period <= best.period)
        for p in plans
    ]
    return (replace(plans[0], note=best.note), *plans[1:])


def least_latency(
    costs: CostModel,
    stages: int,
    period: float,
    *,
    deadline: Deadline | None = None,
    constraints: Constraints = FREE,
    allow_empty: bool = False,
) -> Plan:
    """The split of least latency, then fewest bytes moved, with a period of at most ``period``.

    The period may be exceeded by 1e-12 relative. ``optimal`` is about the latency, ``lower_bound``
    about the period.

    Raises:
        Infeasible: No split has such a period.
    """
    problem = _posed(costs, stages, constraints, allow_empty)
    best, rows = _solve(problem, constraints, costs, deadline)
    if best.period > period * (1 + 1e-12):
        raise Infeasible(
            f"no split has a period of at most {period}; the least period is {best.period}"
        )
    scaled = scale(problem, period)
    # The split of least period is a solution, so its latency is a bound, up to rounding.
    latency = best.latency / scaled.unit + scaled.rounding * (stages + 1)
    try:
        layers = DownsetLayers(scaled, _table(problem, rows, best), deadline)
        cuts = dynamic_program.least_latency(layers, scaled.limit, latency)
    except OutOfTime:
        note = "the time was up; this is the split of least period"
        return replace(best, optimal=False, note=note)
    if cuts is None:
        return replace(best, optimal=rows is not None)
    return replace(
        problem.plan(cuts), lower_bound=best.lower_bound, optimal=rows is not None, note=best.note
    )


def pareto_front(
    costs: CostModel,
    stages: int,
    *,
    deadline: Deadline | None = None,
    constraints: Constraints = FREE,
    allow_empty: bool = False,
) -> Front[Plan]:
    """One split for each point of the front of period, latency and peak memory, by period.

    Raises:
        Infeasible: As ``plan``.
    """
    problem = _posed(costs, stages, constraints, allow_empty)
    best, rows = _solve(problem, constraints, costs, deadline)
    words, reported = _table(problem, rows, best), best
    for factor in _FRONT_LIMITS:
        scaled = scale(problem, best.period * factor)
        if factor > 1 and scaled.rounding * scaled.unit > _COARSE * best.period > 0:
            reported = noted(best, "periods far above the least were left out")
            continue
        try:
            paths, complete = front(DownsetLayers(scaled, words, deadline))
        except OutOfTime:
            reported = noted(reported, "the time was up; this is the split of least period")
            return Front((best,), False, reported.note)
        except TooManyStages:
            reported = noted(best, "periods more than a few percent above the least were left out")
            continue
        break
    else:
        reported = noted(best, "too many splits; this is the one of least period")
        return Front((best,), False, reported.note)
    plans = sorted((problem.plan(cuts) for cuts in paths), key=lambda plan: plan.rank)
    bound = best.lower_bound
    return Front(
        tuple(replace(p, lower_bound=bound, optimal=p.period <= bound) for p in plans),
        complete and rows is not None and factor == math.inf,
        reported.note,
    )


def _posed(costs: CostModel, stages: int, constraints: Constraints, allow_empty: bool) -> Problem:
    try:
        return pose(costs, stages, constraints, allow_empty=allow_empty)
    except Infeasible as error:
        raise explained(str(error), costs, stages, constraints, allow_empty) from error


def _solve(
    problem: Problem, constraints: Constraints, costs: CostModel, deadline: Deadline | None
) -> tuple[Plan, Words | None]:
    """The best split, and the table of all downsets where they could be listed."""
    # Without a deadline, so that there is a split to return in any case.
    first = search(problem, prefixes(range(problem.size), problem.size))
    best = search(problem, start_rows(problem), first.plan, deadline).plan
    bound, limit, note = work_bound(problem), row_limit(problem), ""
    rows: Words | None = None
    try:
        rows = list_rows(problem.contraction.predecessors, limit, deadline)
    except TooManyDownsets:
        note = f"more than {limit} legal cuts: searched among those near some op orders"
    except OutOfTime:
        note = "the time was up before all legal cuts were listed"
    if rows is None or len(rows) > LARGE_TABLE:
        # A good split leaves few of all cuts to be searched.
        rounds = _PATIENT_ROUNDS if rows is None else _QUICK_ROUNDS
        best = improve(problem, best, bound, deadline, rounds)
    if rows is None:
        result = SearchResult(best, bound, best is not None and best.period <= bound)
    else:
        result = search(problem, rows, best, deadline)
        if not result.proven:
            note = "the time was up before all legal cuts were searched"
    if result.plan is None:
        if rows is None or not result.proven:
            where = "among some of the cuts; loosen a constraint or a memory limit"
            if deadline is not None and deadline():
                where = "within the time limit; raise it"
            raise NotFound(f"no split into {problem.stages} stages was found {where}")
        message = f"no split into {problem.stages} stages satisfies all conditions"
        raise explained(message, costs, problem.stages, constraints, problem.allow_empty, deadline)
    plan = replace(result.plan, lower_bound=result.bound, optimal=result.proven, note=note)
    return plan, rows


def _table(problem: Problem, rows: Words | None, best: Plan) -> Words:
    """All downsets; where they are too many, those along a few orders and of the best split."""
    if rows is not None:
        return rows
    return merge(start_rows(problem), to_words(problem.group_cuts(best), problem.size))


def noted(best: P, note: str) -> P:
    """The plan with one more note."""
    return replace(best, note=f"{best.note} {note}".strip())
