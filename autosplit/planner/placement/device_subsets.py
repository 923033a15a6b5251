"""The best splits where stages may stay empty, whatever number of devices they use."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import chain, islice

from autosplit.cuts.stages import Stages
from autosplit.errors import Infeasible
from autosplit.planner import FREE, CostModel, evaluate, k_best
from autosplit.planner.large.simple_bound import simple_bound
from autosplit.planner.placement.canonical import Places
from autosplit.planner.problem.contention import Crowd
from autosplit.planner.problem.problem import pose

CHOICES = 64  # choices of devices that are planned for one by one at most


def best(places: Places, costs: CostModel, count: int, late: Callable[[], bool]) -> list[Stages]:
    """The ``count`` best splits under costs that do not depend on how many stages run, best first."""
    asked, stages = count, len(places.kinds)
    while True:
        plans = k_best(
            costs, stages, asked, deadline=late, allow_empty=True, empty_last=costs.devices is None
        )
        found = list(dict.fromkeys(places.first(p.stages) for p in plans))
        if len(found) >= count or len(plans) < asked or late():
            return found[:count]
        asked *= 2  # some were one split on devices that are alike


def best_of_each(
    places: Places, costs: Crowd, most: int, count: int, late: Callable[[], bool]
) -> list[Stages]:
    """The ``count`` best splits into up to ``most`` stages under costs that depend on how many run, best first.

    Every choice of devices is planned for by itself, the most promising by its lower bound first, until no other can hold
    one of the best; where the choices are too many, every number of stages by itself, which may miss some.
    Raises Infeasible where none fits the devices.
    """
    choices = list(
        islice(
            chain.from_iterable(places.choices(used) for used in range(1, most + 1)), CHOICES + 1
        )
    )
    if len(choices) > CHOICES:
        likely = [best(places, costs.of(used), count, late) for used in range(1, most + 1)]
        splits = dict.fromkeys(chain.from_iterable(likely))
        return sorted(splits, key=lambda stages: _period(costs, stages))[:count]
    found: list[tuple[float, float, float, Stages]] = []
    posed = sorted(
        (bound, devices) for devices in choices if (bound := _bound(costs, devices)) < math.inf
    )
    for bound, devices in posed:
        if late() or (len(found) >= count and bound > found[count - 1][0]):
            break
        try:
            plans = k_best(_on(costs, devices), len(devices), count, deadline=late)
        except Infeasible:
            continue
        new = (
            (p.period, p.latency, p.bytes_moved, places.seated(p.stages, devices)) for p in plans
        )
        found = sorted([*found, *new])[:count]
    if not found:
        raise Infeasible(
            f"no split of '{costs.of(1).name}' fits the devices; loosen a constraint or a memory limit"
        )
    return [stages for *_, stages in found]


def _on(costs: Crowd, devices: tuple[int, ...]) -> CostModel:
    """The costs on some devices alone."""
    return costs.of(len(devices)).on_devices(devices)


def _bound(costs: Crowd, devices: tuple[int, ...]) -> float:
    try:
        return simple_bound(pose(_on(costs, devices), len(devices), FREE))
    except Infeasible:
        return math.inf


def _period(costs: Crowd, stages: Stages) -> float:
    return evaluate(costs.of(sum(map(bool, stages))), stages, allow_empty=True).period
