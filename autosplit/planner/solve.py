"""What the planner is asked: the best split, the k best, the least latency under a period limit, the Pareto front."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from autosplit.cuts import TooManyDownsets
from autosplit.errors import ConfigError, Infeasible
from autosplit.planner.exact.downset_table import Words, list_rows, merge, prefixes, to_words
from autosplit.planner.exact.dynamic_program import Chain
from autosplit.planner.exact.k_best import best_paths
from autosplit.planner.exact.layered_network import TooManyStages
from autosplit.planner.exact.pareto import front
from autosplit.planner.exact.search import Found, row_limit, search, start_rows
from autosplit.planner.explain import clashing
from autosplit.planner.large.anytime import improve
from autosplit.planner.large.cut_bound import cut_bound
from autosplit.planner.large.narrow import narrow_rows
from autosplit.planner.large.simple_bound import simple_bound
from autosplit.planner.problem.constraints import FREE, Constraints
from autosplit.planner.problem.cost_model import CostModel
from autosplit.planner.problem.evaluation import Plan
from autosplit.planner.problem.problem import Deadline, OutOfTime, Problem, pose, scale

_PATIENT = 12  # rounds without a better split before giving up
_QUICK = 4  # rounds without a better split before a proof is tried
_ABOVE = (
    math.inf,
    1.5,
    1.1,
    1.02,
    1.005,
    1.0,
)  # how far above the least period the front is looked for


@dataclass(frozen=True)
class Front:
    """Splits that no other beats in period, latency and peak memory at once; ``complete``: every such point is there."""

    plans: tuple[Plan, ...]
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

    ``deadline`` says true when the time is up: the best split so far is returned, with ``optimal`` false and the lower
    bound proven by then. Raises Infeasible where no split satisfies the constraints, naming some that clash.
    """
    return _solve(_posed(costs, stages, constraints, allow_empty), constraints, costs, deadline)[0]


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
    """The k best distinct splits in order of period, latency and bytes moved; fewer where there are no more.

    ``empty_last`` allows empty stages after all others only, so that no split is listed twice where devices are alike.
    ``note`` of the first says where a limit or the deadline left it at fewer, or at splits along a few op orders. Raises as
    ``plan`` does, and ConfigError for ``k`` below 1.
    """
    if k < 1:
        raise ConfigError(f"the {k} best splits asked for; ask for at least 1")
    problem = _posed(costs, stages, constraints, allow_empty or empty_last)
    problem = replace(problem, empty_last=empty_last)
    best, rows = _solve(problem, constraints, costs, deadline)
    if k == 1:
        return (best,)
    try:
        chain = Chain(scale(problem, math.inf), _with(problem, rows, best), deadline)
        least = chain.least_period(best.period / chain.scaled.unit + chain.scaled.rounding)
        paths = best_paths(chain, least[0], k) if least else []
    except OutOfTime:
        return (
            replace(
                best, note=f"{best.note} the time was up before further splits were found".strip()
            ),
        )
    except TooManyStages as error:
        return (replace(best, note=f"{best.note} {error}".strip()),)
    plans = sorted((problem.plan(tuple(cuts)) for cuts in paths), key=_key)
    found = [
        replace(p, lower_bound=best.lower_bound, optimal=best.optimal and p.period <= best.period)
        for p in plans
    ]
    return (replace(found[0], note=best.note), *found[1:])


def least_latency(
    costs: CostModel,
    stages: int,
    period: float,
    *,
    deadline: Deadline | None = None,
    constraints: Constraints = FREE,
    allow_empty: bool = False,
) -> Plan:
    """The split of least latency, then fewest bytes moved, whose period is at most ``period`` (to 1e-12 relative).

    ``optimal`` of it speaks of the latency, ``lower_bound`` of the period. Raises Infeasible where no split is as fast.
    """
    problem = _posed(costs, stages, constraints, allow_empty)
    best, rows = _solve(problem, constraints, costs, deadline)
    if best.period > period * (1 + 1e-12):
        raise Infeasible(
            f"no split was found with a period of at most {period}; the least found is {best.period}"
        )
    scaled = scale(problem, period)
    slack = scaled.rounding * (stages + 1)
    try:
        chain = Chain(scaled, _with(problem, rows, best), deadline)
        found = chain.least_latency(scaled.limit, best.latency / scaled.unit + slack)
    except OutOfTime:
        return replace(
            best, optimal=False, note="the time was up; this is the split of least period"
        )
    if found is None:
        return replace(best, optimal=rows is not None)
    return replace(
        problem.plan(tuple(found[2])),
        lower_bound=best.lower_bound,
        optimal=rows is not None,
        note=best.note,
    )


def pareto_front(
    costs: CostModel,
    stages: int,
    *,
    deadline: Deadline | None = None,
    constraints: Constraints = FREE,
    allow_empty: bool = False,
) -> Front:
    """One split for each point of the front of period, latency and peak memory, by ascending period."""
    problem = _posed(costs, stages, constraints, allow_empty)
    best, rows = _solve(problem, constraints, costs, deadline)
    words, note = _with(problem, rows, best), best.note
    for above in _ABOVE:
        try:
            chains, whole = front(Chain(scale(problem, best.period * above), words, deadline))
            break
        except OutOfTime:
            return Front(
                (best,), False, f"{note} the time was up; this is the split of least period".strip()
            )
        except TooManyStages:
            note = (
                f"{best.note} periods more than a few percent above the least were left out".strip()
            )
    else:
        return Front(
            (best,), False, f"{best.note} too many splits; this is the one of least period".strip()
        )
    plans = sorted((problem.plan(tuple(cuts)) for cuts in chains), key=_key)
    return Front(
        tuple(
            replace(p, lower_bound=best.lower_bound, optimal=p.period <= best.lower_bound)
            for p in plans
        ),
        whole and rows is not None and above == math.inf,
        note,
    )


def _posed(costs: CostModel, stages: int, constraints: Constraints, allow_empty: bool) -> Problem:
    try:
        return pose(costs, stages, constraints, allow_empty=allow_empty)
    except Infeasible as error:
        raise _explained(str(error), costs, stages, constraints, allow_empty, None) from error


def _solve(
    problem: Problem, constraints: Constraints, costs: CostModel, deadline: Deadline | None
) -> tuple[Plan, Words | None]:
    """The best split, and the table of all downsets where they could be listed."""
    line = search(
        problem, prefixes(range(problem.size), problem.size)
    )  # in any case there is something to return
    first = search(problem, start_rows(problem), line.plan, deadline)
    limit = row_limit(problem)
    try:
        rows: Words | None = list_rows(problem.contraction.predecessors, limit)
    except TooManyDownsets:
        rows = None
    if rows is not None:
        found, note = search(problem, rows, first.plan, deadline), ""
    else:
        found = _wide(problem, first, deadline)
        how = (
            "listed those a better split could have"
            if found.proven
            else "searched among some, bounded by flows"
        )
        note = f"more than {limit} legal cuts: {how}"
    if found.plan is None:
        if rows is None or not found.proven:
            raise Infeasible(
                f"no split into {problem.stages} stages was found in the time given; give more time"
            )
        message = f"no split into {problem.stages} stages satisfies all conditions"
        raise _explained(message, costs, problem.stages, constraints, problem.allow_empty, deadline)
    return replace(found.plan, lower_bound=found.bound, optimal=found.proven, note=note), rows


def _wide(problem: Problem, first: Found, deadline: Deadline | None) -> Found:
    """The best split found where downsets are too many: a search, then a proof where few cuts are left, then more."""
    top = math.inf if first.plan is None else first.plan.period
    bound, cheap = cut_bound(problem, simple_bound(problem), top, deadline)
    found = improve(problem, first, bound, cheap, deadline, rounds=_QUICK)
    if found.plan is not None:
        try:
            rows = narrow_rows(
                problem, found.plan.period, row_limit(problem) // problem.stages, deadline
            )
        except (OutOfTime, TooManyDownsets):
            rows = None
        if rows is not None:
            proven = search(problem, rows, found.plan, deadline)
            found = proven if proven.proven else Found(proven.plan, max(bound, proven.bound), False)
    if found.proven:
        return found
    rounds = (
        _PATIENT if deadline is None else _PATIENT * 4
    )  # with a deadline the time is there to be used
    return improve(problem, found, found.bound, cheap, deadline, rounds=rounds, seed=1)


def _explained(
    message: str,
    costs: CostModel,
    stages: int,
    constraints: Constraints,
    allow_empty: bool,
    deadline: Deadline | None,
) -> Infeasible:
    """The error that names conditions which clash."""

    def feasible(model: CostModel, kept: Constraints) -> bool:
        try:
            problem = pose(model, stages, kept, allow_empty=allow_empty)
        except Infeasible:
            return False
        if search(problem, start_rows(problem), None, deadline).plan is not None:
            return True
        try:
            rows = list_rows(problem.contraction.predecessors, row_limit(problem))
        except TooManyDownsets:
            return True  # not proven to clash
        found = search(problem, rows, None, deadline)
        return found.plan is not None or not found.proven

    texts = clashing(costs, constraints, feasible)
    return Infeasible(
        f"{message}; these clash, drop one: {'; '.join(texts)}"
        if texts
        else _hopeless(message, costs)
    )


def _hopeless(message: str, costs: CostModel) -> str:
    """What is wrong where no condition is to blame: too few groups, or an op that no device can run."""
    for i, name in enumerate(costs.names):
        if all(row[i] == math.inf for row in costs.times):
            return f"{message}: op '{name}' is supported on no device; leave it out or add a device for it"
    return message


def _with(problem: Problem, rows: Words | None, best: Plan) -> Words:
    """All downsets; where they are too many, those along a few orders and those of the best split."""
    if rows is not None:
        return rows
    groups = problem.contraction.groups
    own = [sum(1 << g for g, ops in enumerate(groups) if ops & cut) for cut in best.cuts]
    return merge(start_rows(problem), to_words(own, problem.size))


def _key(plan: Plan) -> tuple[float, float, float]:
    return plan.period, plan.latency, plan.bytes_moved
