"""What a split must satisfy beyond being legal, and what that means for contracted groups."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from autosplit.cuts import bitset
from autosplit.errors import ConfigError, Infeasible
from autosplit.planner.problem.cost_model import CostModel
from autosplit.planner.problem.runtime_costs import of_device

_T = TypeVar("_T")


@dataclass(frozen=True)
class Constraints:
    """Conditions on a split, in the user's words: ops by id, tensors by name, stages from 0.

    ``keep_together``: ops that stay on one stage; ``stages``: op to stage; ``devices``: op to
    device of the cost model; ``forbid``: tensors that no cut may separate from a reader;
    ``require``: tensors that some cut separates from a reader; ``live_tensors`` and ``live_bytes``:
    the most that may be live at any cut; ``memory``: bytes each device holds, one value for all or
    one per device.
    """

    keep_together: Sequence[Sequence[str | int]] = ()
    stages: Mapping[str | int, int] = field(default_factory=dict)
    devices: Mapping[str | int, int] = field(default_factory=dict)
    forbid: Sequence[str] = ()
    require: Sequence[str] = ()
    live_tensors: int | None = None
    live_bytes: float | None = None
    memory: Sequence[float] = (math.inf,)


FREE = Constraints()


def limited(costs: CostModel, stages: int, constraints: Constraints) -> CostModel:
    """The costs with the groups and the memory of the constraints.

    Raises:
        ConfigError: An op or a tensor is unknown, or memory is not for one or all devices.
    """
    op_index = partial(_op_index, costs)
    groups = [bitset(map(op_index, ops)) for ops in constraints.keep_together]
    tensors = {t.name: t for t in costs.tensors if t.producer is not None}
    for name in constraints.forbid:
        tensor = _find_tensor(tensors, name)
        groups.append(bitset(tensor.consumers) | 1 << (tensor.producer or 0))
    if len(constraints.memory) not in (1, stages):
        raise ConfigError(
            f"memory has {len(constraints.memory)} values for {stages} stages; give 1 or {stages}"
        )
    memory = tuple(
        min(of_device(costs.memory, d), of_device(constraints.memory, d)) for d in range(stages)
    )
    if len(set(memory)) == 1:
        memory = memory[:1]
    if not groups and memory == costs.memory:
        return costs
    return replace(costs, groups=(*costs.groups, *groups), memory=memory)


def pinned_groups(
    costs: CostModel, group_of: Sequence[int], stages: int, constraints: Constraints
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """For each cut 0..K the bitsets of groups that must lie before it, and that must not.

    Raises:
        ConfigError: An op is unknown, or is pinned to a stage that does not exist.
    """
    inside, outside = [0] * (stages + 1), [0] * (stages + 1)
    inside[stages] = outside[0] = bitset(group_of)
    for word, pins in (("stage", constraints.stages), ("device", constraints.devices)):
        for op, stage in pins.items():
            if not 0 <= stage < stages:
                raise ConfigError(
                    f"op {op!r} is pinned to {word} {stage}; give one of 0 to {stages - 1}"
                )
            group = 1 << group_of[_op_index(costs, op)]
            # Cut k lies before stage k, so the op lies before the cuts after its stage.
            for cut in range(stage + 1):
                outside[cut] |= group
            for cut in range(stage + 1, stages + 1):
                inside[cut] |= group
    return tuple(inside), tuple(outside)


def required_tensors(
    constraints: Constraints, place_of: Mapping[str, int | None]
) -> tuple[int, ...]:
    """The places of the tensors that some cut must separate.

    ``place_of``: the place of each tensor by name, None for one inside a group.

    Raises:
        ConfigError: A tensor is unknown.
        Infeasible: The ops of a required tensor stay together.
    """
    places: dict[int, None] = {}
    for name in constraints.require:
        place = _find_tensor(place_of, name)
        if place is None:
            raise Infeasible(
                f"a cut at tensor {name!r} is required, but its ops must stay together; "
                "remove one of the two"
            )
        places[place] = None
    return tuple(places)


def _op_index(costs: CostModel, op: str | int) -> int:
    if op not in costs.index:
        raise ConfigError(
            f"a constraint names op {op!r}, which the graph does not have; use one of its ids"
        )
    return costs.index[op]


def _find_tensor(tensors: Mapping[str, _T], name: str) -> _T:
    if name not in tensors:
        raise ConfigError(
            f"a constraint names tensor {name!r}, where no cut is possible; use one between two ops"
        )
    return tensors[name]
