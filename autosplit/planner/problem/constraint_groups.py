"""What constraints, given in the user's words, mean for the costs and the contracted groups of a problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from autosplit.cuts import bitset
from autosplit.errors import ConfigError, Infeasible
from autosplit.planner.problem.constraints import Constraints
from autosplit.planner.problem.cost_model import CostModel
from autosplit.planner.problem.evaluation import value

_T = TypeVar("_T")


def limited(costs: CostModel, stages: int, constraints: Constraints) -> CostModel:
    """The costs with the groups and the memory of the constraints. Raises ConfigError for an unknown op or tensor."""
    keep_together = [
        bitset(_op_index(costs, op) for op in group) for group in constraints.keep_together
    ]
    tensors = {t.name: t for t in costs.tensors if t.producer is not None}
    for name in constraints.forbid:
        tensor = _find_tensor(tensors, name)
        keep_together.append(bitset(tensor.consumers) | 1 << (tensor.producer or 0))
    if len(constraints.memory) not in (1, stages):
        raise ConfigError(
            f"memory of {len(constraints.memory)} devices given for {stages} stages; give 1 or {stages}"
        )
    memory = tuple(min(value(costs.memory, d), value(constraints.memory, d)) for d in range(stages))
    alike = len(set(memory)) == 1
    changed = replace(
        costs, groups=(*costs.groups, *keep_together), memory=memory[:1] if alike else memory
    )
    return changed if keep_together or changed.memory != costs.memory else costs


def levels(
    costs: CostModel, group_of: tuple[int, ...], stages: int, constraints: Constraints, n: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """For each cut 0..K the bitsets of groups that must lie before it, and that must not, by the pins of the constraints.

    ``n``: the number of groups. Raises ConfigError for an unknown op or a stage that is not there.
    """
    inside, outside = [0] * (stages + 1), [0] * (stages + 1)
    inside[stages], outside[0] = (1 << n) - 1, (1 << n) - 1
    for word, pins in (("stage", constraints.stages), ("device", constraints.devices)):
        for op, stage in pins.items():
            if not 0 <= stage < stages:
                raise ConfigError(
                    f"op {op!r} is pinned to {word} {stage}; give one of 0 to {stages - 1}"
                )
            bit = 1 << group_of[_op_index(costs, op)]
            for level in range(stages + 1):
                if level > stage:
                    inside[level] |= bit
                else:
                    outside[level] |= bit
    return tuple(inside), tuple(outside)


def required(constraints: Constraints, names: dict[str, int | None]) -> tuple[int, ...]:
    """The indices of the tensors that some cut must separate; ``names`` says which each is, None inside a group.

    Raises ConfigError for an unknown tensor, Infeasible for one whose ops stay together.
    """
    found = []
    for name in constraints.require:
        t = _find_tensor(names, name)
        if t is None:
            raise Infeasible(
                f"a cut at tensor {name!r} is required, but its ops stay together; drop one of the two"
            )
        found.append(t)
    return tuple(dict.fromkeys(found))


def _op_index(costs: CostModel, op: str | int) -> int:
    """The index of an op by id. Raises ConfigError where there is none."""
    if op not in costs.index:
        raise ConfigError(
            f"a constraint names op {op!r}, which the graph does not have; use one of its ids"
        )
    return costs.index[op]


def _find_tensor(tensors: Mapping[str, _T], name: str) -> _T:
    """The tensor by name. Raises ConfigError where there is none."""
    if name not in tensors:
        raise ConfigError(
            f"a constraint names tensor {name!r}, which no cut can lie at; use one between two ops"
        )
    return tensors[name]
