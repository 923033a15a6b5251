"""The best split on given devices, which may differ and may share cores.

While one stage uses a core, other stages on it wait, so their loads add up, and the period is at
least the largest sum. The search compares single loads only. For shared cores it gets costs at
which each device is slowed by the devices that it shares a core with.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from autosplit.deployment import Deployment, resources_of
from autosplit.errors import ConfigError
from autosplit.planner.costs import CostModel
from autosplit.planner.evaluation import Plan, evaluate
from autosplit.planner.problem import SAME, Deadline, Question
from autosplit.planner.solver import partition


def plan_split(
    costs: CostModel,
    devices: Sequence[str],
    stages: int,
    *,
    slowed: CostModel | None = None,
    any_order: bool = False,
    empty: bool = False,
    replicas: bool = False,
    deadline: Deadline | None = None,
) -> Plan:
    """The best split of ``stages`` stages, placed on devices.

    ``devices``, each a kind of the costs, are in pipeline order. With ``any_order`` or
    ``replicas``, or if their number is not ``stages``, any stage may have any device. ``empty``:
    devices may stay unused. ``replicas``: a stage may have several devices. ``slowed``: the costs
    to search with if devices share cores; the plan has the real ones. Raises as ``partition``.
    """
    # Where devices share cores, two that cost the same may differ in how they are slowed.
    kinds = list(devices) if slowed else [costs.alike[device] for device in devices]
    in_order = not (any_order or replicas) and len(devices) == stages
    if in_order:
        question = Question.along(kinds, empty=empty)
    elif empty and stages < len(devices):
        raise ConfigError(
            f"{stages} stages of which some may be empty, on {len(devices)} devices; "
            "give as many stages as devices"
        )
    else:
        number = None if empty or replicas else stages
        question = Question(Counter(kinds), stages=number, replicas=replicas)
    best = partition(slowed or costs, question, deadline=deadline)
    places = list(zip(kinds, devices, strict=True))
    placed = Deployment(best.stages).on_devices(places, in_order)
    best = replace(best, stages=placed.stages)
    return with_shared_loads(best, costs, devices) if slowed else best


def with_shared_loads(plan: Plan, costs: CostModel, devices: Sequence[str]) -> Plan:
    """The plan for slowed costs with real loads; its period and bound follow from their sums.

    The period of a stage is the largest sum of loads on any of its cores.
    """
    real = evaluate(costs, plan.stages)
    used = [resources_of(stage.devices[0]) for stage in plan.stages]
    on_core: dict[str, list[float]] = {}
    for load, cores in zip(real.loads, used, strict=True):
        for core in cores:
            on_core.setdefault(core, []).append(load)
    periods = []
    for load, cores in zip(real.loads, used, strict=True):
        periods.append(max([load, *(math.fsum(on_core[core]) for core in cores)]))
    real = replace(real, periods=tuple(periods))
    bound = min(real.period, shared_bound(costs, devices))
    note = "devices share cores, so the loads on a core add up"
    return replace(
        real,
        lower_bound=bound,
        optimal=real.period <= bound * (1 + SAME),
        note=f"{plan.note}; {note}" if plan.note else note,
    )


def shared_bound(costs: CostModel, devices: Sequence[str], kinds: Sequence[str] = ()) -> float:
    """A lower bound of the period: the longest op, or all work on cores that are never idle.

    ``kinds``: the kind of each device, if ``devices`` are not kinds themselves.
    """
    times, core_times = [], []
    every_core: set[str] = set()
    for place, device in enumerate(devices):
        # A device that shares nothing, a server of a tracker for example, counts as a core.
        cores = resources_of(device) or (f"device {place}",)
        every_core.update(cores)
        kind = kinds[place] if kinds else device
        rows = [row.times for row in costs.rows if row.row.kind == kind]
        least = [min(each) for each in zip(*rows, strict=True)]
        times.append(least)
        core_times.append([time * len(cores) for time in least])
    longest = max(map(min, zip(*times, strict=True)), default=0.0)
    return max(longest, math.fsum(map(min, zip(*core_times, strict=True))) / len(every_core))
