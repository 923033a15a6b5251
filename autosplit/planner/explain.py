"""The errors that say why no deployment satisfies a question."""

from __future__ import annotations

import math

from autosplit.cuts import members
from autosplit.errors import Infeasible
from autosplit.planner.costs import CostModel
from autosplit.planner.problem import Question
from autosplit.units import size


class NotFound(Infeasible):
    """No deployment was found, which does not prove that there is none."""


def not_found(costs: CostModel, question: Question, late: bool) -> NotFound:
    """The error where not all deployments were searched; ``late``: because the time was up."""
    where = "among those that were searched; loosen a limit or give more devices"
    if late:
        where = "within the time limit; raise it"
    return NotFound(f"no {_asked(costs, question)} was found {where}")


def infeasible(costs: CostModel, question: Question, max_period: float = 0.0) -> Infeasible:
    """The error where no deployment satisfies the question."""
    message = f"no {_asked(costs, question)}"
    if max_period:
        return Infeasible(f"{message} has a period of at most {max_period:g}; give a longer one")
    reason = unsupported(costs) or too_large(costs, question)
    reason = reason or forbidden_by_states(costs, question.stages or 1)
    return Infeasible(
        f"{message} satisfies all conditions: "
        + (reason or "give more memory or devices, or keep fewer ops together")
    )


def too_many_stages(costs: CostModel, stages: int) -> Infeasible | None:
    """The error where fewer groups of ops can be separated than stages are asked for."""
    groups = len(costs.contraction.groups)
    if groups >= stages:
        return None
    message = f"{stages} stages are too many: only {groups} groups of ops can be separated"
    reason = forbidden_by_states(costs, stages)
    return Infeasible(f"{message}; {reason or f'use at most {groups} stages'}")


def unsupported(costs: CostModel) -> str:
    """A message about the first op that no row of the costs can run; empty without one."""
    for i, name in enumerate(costs.names):
        if all(row.times[i] == math.inf for row in costs.rows):
            return f"op '{name}' is supported on no device; leave it out or add a device for it"
    return ""


def too_large(costs: CostModel, question: Question) -> str:
    """A message about what exceeds the memory of devices; empty if one of them has no limit."""
    limits = {name: costs.kinds[costs.kind_index[name]].memory for name in question.devices}
    largest = max(limits.values())
    if largest == math.inf:
        return ""
    for group in costs.contraction.groups:
        ops = list(members(group))
        weights = math.fsum(costs.sizes[op] for op in ops)
        if weights > largest:
            names = ", ".join(repr(costs.names[op]) for op in ops[:3])
            verb, more = ("has", "") if len(ops) == 1 else ("have", ", which stay together,")
            return (
                f"op {names}{more} {verb} weights of {size(weights)}, the memory of a device is "
                f"{size(largest)}; give more memory"
            )
    whole = math.fsum(costs.sizes)
    every = math.fsum(limits[name] * count for name, count in question.devices.items())
    if whole > every:
        return (
            f"the weights take {size(whole)}, all devices have {size(every)}; "
            "give more devices or memory"
        )
    if not costs.activations and whole <= min(limits.values()):
        return "the devices, in this order, cannot run all ops; give other devices or --assign"
    return f"the memory of a device is {size(largest)}; give more memory or devices"


def forbidden_by_states(costs: CostModel, stages: int) -> str:
    """A message about states without which there would be enough groups; empty without any."""
    names = [name for name, _ in costs.states]
    groups = costs.contraction.groups
    if len(groups) >= stages or len(costs.without_states(names).contraction.groups) < stages:
        return ""
    blamed = names
    # Deletion filter: a state stays only if without it there would be enough groups.
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


def _asked(costs: CostModel, question: Question) -> str:
    if question.stages is not None:
        return f"split of '{costs.name}' into {question.stages} stages"
    return f"deployment of '{costs.name}' on {question.count} {question.noun}"
