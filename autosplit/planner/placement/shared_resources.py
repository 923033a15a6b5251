"""Devices that share a core: while one of their stages uses it, the others wait.

The loads of the stages on a core add up, and the period is at least the largest sum. A search that
compares single loads finds such splits by costs at which each stage runs as much slower as there
are devices on its core: where those have equal loads, a slowed load is the sum of the real ones.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace

from autosplit.planner.partition.problem import Deadline
from autosplit.planner.problem.cost_model import CostModel
from autosplit.planner.problem.evaluation import Plan, evaluate
from autosplit.planner.problem.runtime_costs import of_device
from autosplit.planner.solve import plan

Resources = Sequence[Sequence[Hashable]]  # of each device: its cores


def users_of(resources: Resources) -> tuple[int, ...]:
    """For each device the number of devices on the core that it shares with most; at least 1."""
    counts = Counter(core for cores in resources for core in cores)
    return tuple(max((counts[core] for core in cores), default=1) for cores in resources)


def slowed(costs: CostModel, resources: Resources) -> CostModel:
    """The costs where every device computes its stage beside the stages that it shares with."""
    users = users_of(resources)
    return costs if max(users) == 1 else costs.on_devices(range(len(users)), users)


def with_shared_loads(plan: Plan, costs: CostModel, resources: Resources) -> Plan:
    """A plan for slowed costs with its real loads, and the period and bound of their sums."""
    if max(users_of(resources)) == 1:
        return plan
    on_core: dict[Hashable, list[float]] = {}
    real = evaluate(costs, plan.stages, allow_empty=True)
    for load, cores in zip(real.loads, resources, strict=True):
        for core in cores:
            on_core.setdefault(core, []).append(load)
    period = max(real.period, *map(math.fsum, on_core.values()))
    bound = min(period, shared_bound(costs, resources))
    return replace(
        real,
        period=period,
        lower_bound=bound,
        optimal=period <= bound * (1 + 1e-9),
        devices=plan.devices,
        note=f"{plan.note} devices share cores, so the loads on a core add up".strip(),
    )


def shared_bound(costs: CostModel, resources: Resources) -> float:
    """A bound of every period: the longest op, and all work on cores that are never idle."""
    # A device that shares nothing, a server of a tracker for example, counts as a core.
    every_core = {core for cores in resources for core in cores}
    count = len(every_core) + sum(not cores for cores in resources)
    times = [of_device(costs.times, device) for device in range(len(resources))]
    longest = max(map(min, zip(*times, strict=True)), default=0.0)
    core_times = []
    for row, cores in zip(times, resources, strict=True):
        core_times.append([time * max(1, len(cores)) for time in row])
    return max(longest, math.fsum(map(min, zip(*core_times, strict=True))) / count)


def plan_shared(
    costs: CostModel,
    stages: int,
    resources: Resources,
    *,
    deadline: Deadline | None = None,
    allow_empty: bool = False,
) -> Plan:
    """``plan`` on devices that may share cores. Raises as ``plan``."""
    best = plan(slowed(costs, resources), stages, deadline=deadline, allow_empty=allow_empty)
    return with_shared_loads(best, costs, resources)
