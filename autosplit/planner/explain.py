"""Why no split is feasible: a smallest set of conditions that clash, for the error message."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autosplit.cuts import TooManyDownsets
from autosplit.errors import Infeasible
from autosplit.planner.exact.downset_table import list_rows
from autosplit.planner.exact.search import row_limit, search, start_rows
from autosplit.planner.problem.constraints import Constraints
from autosplit.planner.problem.cost_model import CostModel
from autosplit.planner.problem.problem import Deadline, pose

_LISTS = ("keep_together", "forbid", "require")
_PINS = (("stages", "stage"), ("devices", "device"))
_LIMITS = (("live_tensors", "live tensors at a cut"), ("live_bytes", "live bytes at a cut"))
_GRAPH_MEMORY = "graph memory"


@dataclass(frozen=True)
class Condition:
    """One condition by itself: its text, and the ``value`` that it adds to a field of Constraints.

    The memory of the graph's own devices is not a field; it has the name ``_GRAPH_MEMORY``.
    """

    text: str
    field: str
    value: Any


def explained(
    message: str,
    costs: CostModel,
    stages: int,
    constraints: Constraints,
    allow_empty: bool,
    deadline: Deadline | None = None,
) -> Infeasible:
    """The error to raise: names conflicting conditions, states or an unsupported op."""

    def feasible(model: CostModel, remaining: Constraints) -> bool:
        try:
            problem = pose(model, stages, remaining, allow_empty=allow_empty)
        except Infeasible:
            return False
        if search(problem, start_rows(problem), None, deadline).plan is not None:
            return True
        try:
            rows = list_rows(problem.contraction.predecessors, row_limit(problem))
        except TooManyDownsets:
            return True  # not proven to clash
        result = search(problem, rows, None, deadline)
        return result.plan is not None or not result.proven

    texts = clashing(costs, constraints, feasible)
    if texts:
        return Infeasible(f"{message}; conflicting constraints, remove one: {'; '.join(texts)}")
    blame = forbidden_by_states(costs, stages)
    if blame:
        return Infeasible(f"{message}; {blame}")
    # No condition is to blame: perhaps an op has no device at all.
    for i, name in enumerate(costs.names):
        if all(row[i] == math.inf for row in costs.times):
            message += (
                f": op '{name}' is supported on no device; leave it out or add a device for it"
            )
            break
    return Infeasible(message)


def forbidden_by_states(costs: CostModel, stages: int) -> str:
    """The states that by themselves bind the ops to fewer groups than stages; empty for others."""
    names = [name for name, _ in costs.states]
    groups = costs.contraction.groups
    if len(groups) >= stages or len(costs.without_states(names).contraction.groups) < stages:
        return ""
    blamed = names
    # The same deletion filter: a state stays only if without it there would be enough groups.
    for name in names:
        fewer = [other for other in blamed if other != name]
        dropped = set(names) - set(fewer)
        if len(costs.without_states(dropped).contraction.groups) < stages:
            blamed = fewer
    text = f"state {', '.join(map(repr, blamed))} {'binds' if len(blamed) == 1 else 'bind'}"
    if len(groups) == 1:
        return f"no split exists: {text} all {len(costs.names)} ops to one stage"
    largest = max(ops.bit_count() for ops in groups)
    return f"{text} {largest} of {len(costs.names)} ops to one stage"


def clashing(
    costs: CostModel, constraints: Constraints, feasible: Callable[[CostModel, Constraints], bool]
) -> tuple[str, ...]:
    """The texts of conditions that clash, while without any one of them something is feasible.

    The deletion filter (Chinneck and Dravnieks 1991) leaves out one after the other, with one test
    of ``feasible`` each. Empty where even without all of them nothing is feasible.
    """
    remaining = conditions(costs, constraints)
    if not feasible(*_question(costs, ())):
        return ()
    # A condition stays only if the others are feasible without it.
    for condition in list(remaining):
        others = [c for c in remaining if c is not condition]
        if not feasible(*_question(costs, others)):
            remaining = others
    return tuple(condition.text for condition in remaining)


def conditions(costs: CostModel, constraints: Constraints) -> list[Condition]:
    """The single conditions of a question."""
    single = []
    for group in constraints.keep_together:
        text = f"ops {', '.join(map(repr, group))} together"
        single.append(Condition(text, "keep_together", group))
    for field, word in _PINS:
        for op, place in getattr(constraints, field).items():
            single.append(Condition(f"op {op!r} on {word} {place}", field, {op: place}))
    for name in constraints.forbid:
        single.append(Condition(f"no cut at tensor {name!r}", "forbid", name))
    for name in constraints.require:
        single.append(Condition(f"a cut at tensor {name!r}", "require", name))
    for field, text in _LIMITS:
        most = getattr(constraints, field)
        if most is not None:
            single.append(Condition(f"at most {_number(most)} {text}", field, most))
    if min(constraints.memory) < math.inf:
        text = f"at most {_numbers(constraints.memory)} memory of a device"
        single.append(Condition(text, "memory", tuple(constraints.memory)))
    if min(costs.memory) < math.inf:
        text = f"the graph's {_numbers(costs.memory)} bytes of memory a device"
        single.append(Condition(text, _GRAPH_MEMORY, costs.memory))
    return single


def _question(costs: CostModel, remaining: Sequence[Condition]) -> tuple[CostModel, Constraints]:
    """The costs and constraints with only some conditions."""
    model = replace(costs, memory=(math.inf,))
    fields: dict[str, Any] = {}
    for condition in remaining:
        field, value = condition.field, condition.value
        if field == _GRAPH_MEMORY:
            model = replace(model, memory=value)
        elif field in _LISTS:
            fields[field] = (*fields.get(field, ()), value)
        elif isinstance(value, dict):
            fields[field] = {**fields.get(field, {}), **value}
        else:
            fields[field] = value
    return model, Constraints(**fields)


def _number(value: float) -> str:
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(map(_number, dict.fromkeys(values)))
