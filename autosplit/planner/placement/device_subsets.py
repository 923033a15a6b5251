"""The best splits where stages may stay empty, whatever number of devices they use."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import chain, islice

from autosplit.cuts.stages import Stages
from autosplit.errors import Infeasible
from autosplit.planner.placement.canonical import CanonicalPlacement
from autosplit.planner.problem.contention import ContentionCosts
from autosplit.planner.problem.cost_model import CostModel
from autosplit.planner.problem.evaluation import evaluate
from autosplit.planner.solve import k_best, period_bound

CHOICES = 64  # choices of devices that are planned for one by one at most


def best_splits(
    placement: CanonicalPlacement, costs: CostModel, count: int, timed_out: Callable[[], bool]
) -> list[Stages]:
    """The ``count`` best splits under costs that do not depend on contention, best first."""
    requested, stages = count, len(placement.kinds)
    while True:
        plans = k_best(costs, stages, requested, deadline=timed_out, allow_empty=True)
        # Plans that differ in which of equal devices are empty have one canonical form.
        splits = list(dict.fromkeys(placement.canonical(p.stages) for p in plans))
        if len(splits) >= count or len(plans) < requested or timed_out():
            return splits[:count]
        requested *= 2  # some plans were one split on equal devices


def best_splits_under_contention(
    placement: CanonicalPlacement,
    costs: ContentionCosts,
    most: int,
    count: int,
    timed_out: Callable[[], bool],
) -> list[Stages]:
    """The ``count`` best splits into up to ``most`` stages, best first.

    Every choice of devices is planned for by itself, the one of least bound first, until no other
    can hold one of the best. Where the choices are too many, every number of stages is planned for
    by itself, which may miss some splits.

    Raises:
        Infeasible: No split fits the devices.
    """
    sizes = range(1, most + 1)
    every_choice = chain.from_iterable(map(placement.device_choices, sizes))
    choices = list(islice(every_choice, CHOICES + 1))
    if len(choices) > CHOICES:
        likely = [best_splits(placement, costs.at(used), count, timed_out) for used in sizes]
        splits = dict.fromkeys(chain.from_iterable(likely))
        return sorted(splits, key=lambda stages: _period(costs, stages))[:count]
    best: list[tuple[float, float, float, Stages]] = []
    bounds = [(_bound(costs, devices), devices) for devices in choices]
    # Ascending bounds: the first choice that cannot hold one of the best ends the search.
    for bound, devices in sorted(b for b in bounds if b[0] < math.inf):
        if len(best) >= count and bound > best[count - 1][0]:
            break
        # Out of time before the first split is no proof that none fits.
        if best and timed_out():
            break
        try:
            plans = k_best(_on(costs, devices), len(devices), count, deadline=timed_out)
        except Infeasible:
            continue
        for plan in plans:
            stages = placement.assign(plan.stages, devices)
            best.append((plan.period, plan.latency, plan.bytes_moved, stages))
        best = sorted(best)[:count]
    if not best:
        raise Infeasible(
            f"no split of '{costs.at(1).name}' fits the devices; "
            "loosen a constraint or a memory limit"
        )
    return [stages for *_, stages in best]


def _on(costs: ContentionCosts, devices: tuple[int, ...]) -> CostModel:
    """The costs on some devices alone."""
    return costs.at(len(devices)).on_devices(devices)


def _bound(costs: ContentionCosts, devices: tuple[int, ...]) -> float:
    try:
        return period_bound(_on(costs, devices), len(devices))
    except Infeasible:
        return math.inf


def _period(costs: ContentionCosts, stages: Stages) -> float:
    return evaluate(costs.at(sum(map(bool, stages))), stages, allow_empty=True).period
