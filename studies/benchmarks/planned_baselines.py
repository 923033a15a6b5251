"""The rules by which other programs split a model, as plans along its own order of ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autosplit.cuts import members
from autosplit.cuts.stages import stages_between
from autosplit.deployment import Option, Stage
from autosplit.errors import Infeasible
from autosplit.planner import CostModel, Plan, Question, evaluate, fits, partition
from autosplit.planner.cut_set import to_words
from autosplit.planner.moves import spread_places
from autosplit.planner.problem import problems

_SPARE = 1.2  # times its weights is what a part of a model takes
# Weights of the groups of ops, the share of each device in them, and the devices in their order.
Rule = tuple[Sequence[float], Sequence[float], Sequence[int]]


def planned_or_none(costs: CostModel, question: Question, **options: Any) -> Plan | None:
    """The best plan, None where nothing fits; ``options`` of ``partition``."""
    try:
        return partition(costs, question, **options)
    except Infeasible:
        return None


def planned_baselines(costs: CostModel, stages: int) -> dict[str, Plan | None]:
    """Splits on devices of the one kind of the costs; None where no split of it fits.

    By ``ops``, ``params`` and ``FLOPs`` stages have equal shares of these. No rule that cuts the
    model's own order is better than the best over ``1 order``; torchgpipe's block partition and
    Coral's bisection are such rules. Groups of ops stay together in each.
    """
    question = Question.of_split(stages, costs.kinds[0].name)
    (problem,) = problems(costs, question)
    order = to_words([(1 << place) - 1 for place in range(problem.size + 1)], problem.size)
    equal, devices = [1.0] * stages, [0] * stages
    rules = {
        "ops": (_counts(costs), equal, devices),
        "params": (_sums(costs, costs.sizes), equal, devices),
        "FLOPs": (_sums(costs, costs.flops), equal, devices),
    }
    fitting = {name: plan for name, plan in _plans(costs, rules).items() if fits(costs, plan)}
    best = planned_or_none(costs, question, cuts={problem.batch: order})
    return dict.fromkeys(rules) | fitting | {"1 order": best}


def unlike_baselines(costs: CostModel, speeds: Sequence[float]) -> dict[str, Plan]:
    """What rules of other programs give unlike devices, by name: each a range of ops.

    Device i has row and kind i of the costs, and speed i. The ranges follow the order of the
    devices, or the largest memory comes first. No rule looks at limits: a plan may exceed them.
    OpenVINO's HETERO fills one device after another.
    """
    counts, memory = _counts(costs), [kind.memory for kind in costs.kinds]
    sizes = _sums(costs, costs.sizes)
    filled = _filled(memory, sum(sizes))
    equal, in_order = [1.0] * len(speeds), list(range(len(speeds)))
    largest_first = sorted(in_order, key=lambda device: -memory[device])
    rules = {
        "equal layer counts": (counts, equal, in_order),
        "equal parameters": (sizes, equal, in_order),
        "layers by memory": (counts, memory, in_order),
        "layers by memory, largest first": (counts, memory, largest_first),
        "memory filled in order": (sizes, filled, in_order[: len(filled)]),
        "layers by speed": (counts, speeds, in_order),
    }
    return _plans(costs, rules)


def _filled(memory: Sequence[float], size: float) -> list[float]:
    """What fits each device with a fifth to spare, of a model of that size; the last has the rest.

    Devices after that are left out. So does OpenVINO's policy PIPELINE_PARALLEL.
    """
    parts: list[float] = []
    for room in memory[:-1]:
        left = size - sum(parts)
        if room >= _SPARE * left:
            return [*parts, left]
        parts.append(room / _SPARE)
    return [*parts, size - sum(parts)]


def _counts(costs: CostModel) -> list[float]:
    return [float(ops.bit_count()) for ops in costs.contraction.groups]


def _sums(costs: CostModel, values: Sequence[float]) -> list[float]:
    return [sum(values[op] for op in members(ops)) for ops in costs.contraction.groups]


def _plans(costs: CostModel, rules: Mapping[str, Rule]) -> dict[str, Plan]:
    """What rules give: a range of groups on each device, none empty; nothing without weights."""
    plans = {}
    for name, (weights, shares, devices) in rules.items():
        if not sum(weights):
            continue
        # Cut where the running sum of weights is nearest to the shares.
        running = np.cumsum([0.0, *weights])
        of_devices = [shares[device] for device in devices]
        ends = running[-1] * np.cumsum(of_devices)[:-1] / sum(of_devices)
        places = [int(np.abs(running - end).argmin()) for end in ends]
        spread = spread_places(places, len(weights))
        cuts = [costs.contraction.expand((1 << place) - 1) for place in spread]
        pairs = zip(stages_between(costs, cuts), devices, strict=True)
        stages = [Stage(ops, (Option(costs.rows[device].row),)) for ops, device in pairs]
        plans[name] = evaluate(costs, stages)
    return plans
