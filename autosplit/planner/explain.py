"""Which conditions clash: a smallest set of constraints that cannot hold together, for the message."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from autosplit.planner.problem.constraints import Constraints
from autosplit.planner.problem.cost_model import CostModel


@dataclass(frozen=True)
class Condition:
    """One condition by itself: its text, and what it adds to a question that has none."""

    text: str
    apply: Callable[[CostModel, Constraints], tuple[CostModel, Constraints]]


def clashing(
    costs: CostModel, constraints: Constraints, feasible: Callable[[CostModel, Constraints], bool]
) -> tuple[str, ...]:
    """The texts of conditions that nothing satisfies together, though without any one of them something would.

    Found by leaving out one after the other (the deletion filter, Chinneck and Dravnieks 1991): one test of ``feasible``
    for each condition. Empty where even without all of them nothing is feasible.
    """
    kept = conditions(costs, constraints)
    if not _holds(costs, (), feasible):
        return ()
    for condition in list(kept):
        rest = [c for c in kept if c is not condition]
        if not _holds(costs, rest, feasible):
            kept = rest
    return tuple(condition.text for condition in kept)


def conditions(costs: CostModel, constraints: Constraints) -> list[Condition]:
    """The single conditions of a question."""
    found = [_together(group) for group in constraints.keep_together]
    found += [_pin("stages", "stage", op, s) for op, s in constraints.stages.items()]
    found += [_pin("devices", "device", op, d) for op, d in constraints.devices.items()]
    found += [_tensor("forbid", "no cut at", name) for name in constraints.forbid]
    found += [_tensor("require", "a cut at", name) for name in constraints.require]
    found += [
        _limit(field, text, getattr(constraints, field))
        for field, text in (
            ("live_tensors", "live tensors at a cut"),
            ("live_bytes", "live bytes at a cut"),
        )
        if getattr(constraints, field) is not None
    ]
    if min(constraints.memory) < math.inf:
        found.append(_limit("memory", "memory of a device", tuple(constraints.memory)))
    if min(costs.memory) < math.inf:
        found.append(_own_memory(costs.memory))
    return found


def _holds(
    costs: CostModel, kept: Sequence[Condition], feasible: Callable[[CostModel, Constraints], bool]
) -> bool:
    model, constraints = replace(costs, memory=(math.inf,)), Constraints()
    for condition in kept:
        model, constraints = condition.apply(model, constraints)
    return feasible(model, constraints)


def _together(group: Sequence[str | int]) -> Condition:
    text = "ops " + ", ".join(map(repr, group)) + " together"
    return Condition(
        text, lambda model, c: (model, replace(c, keep_together=(*c.keep_together, group)))
    )


def _pin(field: str, word: str, op: str | int, place: int) -> Condition:
    def apply(model: CostModel, c: Constraints) -> tuple[CostModel, Constraints]:
        pins = {**getattr(c, field), op: place}
        return model, replace(c, stages=pins) if field == "stages" else replace(c, devices=pins)

    return Condition(f"op {op!r} on {word} {place}", apply)


def _tensor(field: str, words: str, name: str) -> Condition:
    def apply(model: CostModel, c: Constraints) -> tuple[CostModel, Constraints]:
        names = (*getattr(c, field), name)
        return model, replace(c, forbid=names) if field == "forbid" else replace(c, require=names)

    return Condition(f"{words} tensor {name!r}", apply)


def _limit(field: str, text: str, most: object) -> Condition:
    def apply(model: CostModel, c: Constraints) -> tuple[CostModel, Constraints]:
        changed: Constraints = replace(c, **{field: most})  # type: ignore[arg-type]
        return model, changed

    return Condition(f"at most {_plain(most)} {text}", apply)


def _own_memory(memory: tuple[float, ...]) -> Condition:
    return Condition(
        f"the graph's {_plain(memory)} bytes of memory a device",
        lambda model, c: (replace(model, memory=memory), c),
    )


def _plain(most: object) -> str:
    values = most if isinstance(most, tuple) else (most,)
    return ", ".join(f"{v:.15g}" if isinstance(v, float) else str(v) for v in dict.fromkeys(values))
