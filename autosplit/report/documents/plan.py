"""The documents of ``plan``: the plan and its proof."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from autosplit.deployment import resources_of

if TYPE_CHECKING:
    from autosplit.hardware.measurement.results import Profile
    from autosplit.planner import CostModel, Plan

_PROOF = ("lower_bound", "gap", "optimal", "note")  # what a plan says of itself


def document(
    costs: CostModel,
    stages: int,
    *,
    runtime: str | None = None,
    threads: Sequence[int] = (),
    resources: Sequence[Sequence[str]] = (),
    deadline: Callable[[], bool] | None = None,
    allow_empty: bool = False,
    assign: bool = False,
) -> dict[str, Any]:
    """The document of ``plan -f json`` without ``seconds``, whose keys stay as they are.

    Times are in the unit of the costs. ``runtime``: what the costs were measured in, None for those
    of a graph file; ``threads``: of each device, by default 1; ``resources``: of each device its
    cores, by default none that another has. ``assign`` searches the order of the devices too.

    Raises:
        Infeasible: no split meets the limits.
        ConfigError: a number makes no sense.
    """
    from autosplit import planner
    from autosplit.planner.placement.shared_resources import slowed

    writer = _Writer(costs, runtime, tuple(range(stages)), threads, resources)
    costs = slowed(costs, resources) if resources else costs
    limits: dict[str, Any] = {"deadline": deadline, "allow_empty": allow_empty}
    # More devices than stages: which ones are used is a part of the question.
    if assign or (costs.devices or 0) > stages:
        best = planner.plan_assigned(costs, stages, **limits)
        writer, costs = writer.in_order(best.devices), _on(costs, best.devices)
    else:
        best = planner.plan(costs, stages, **limits)
    best = writer.real(best)
    return writer.split(best) | {key: getattr(best, key) for key in _PROOF}


def deployment(
    costs: CostModel,
    cores: int,
    runtime: str | None,
    thread_counts: Sequence[int] = (1,),
    deadline: Callable[[], bool] | None = None,
) -> dict[str, Any]:
    """The document of ``plan --cores N -f json`` without ``seconds``.

    ``runtime``: what the costs were measured in, None for those of a graph file;
    ``thread_counts``: of a replica, one for each row of the costs.

    Raises:
        Infeasible: no deployment meets the limits.
        ConfigError: the costs are of unequal devices, or the number of cores makes no sense.
    """
    from autosplit import planner
    from autosplit.planner.problem.deployment import shares

    best = planner.plan_deployment(costs, cores, thread_counts=thread_counts, deadline=deadline)
    result = _Writer(costs, runtime).split(best) | {key: getattr(best, key) for key in _PROOF}
    del result["devices"]
    divisors = shares(costs, best.stages, best.replicas)
    return result | {
        "replicas": list(best.replicas),
        "threads": list(best.threads),
        "periods": list(map(operator.truediv, best.loads, divisors)),
    }


def certainty(
    document: Mapping[str, Any],
    ids: Sequence[Any],
    profiles: Sequence[Profile],
    places: Sequence[str],
    *,
    shared: bool = True,
) -> dict[str, Any]:
    """What is known of the ``profiles`` that a plan rests on: keys of its document.

    ``period_interval``, None without a known spread of every stage, ``disturbances``, and when each
    profile was measured. The interval is that of the largest load, each between the sums of the low
    and of the high ends of its ops: what makes one op slow for a while, such as the processor's
    clock, makes all slow. ``ids`` are the names of the ops in their order, ``places`` the device of
    each stage. Where they are ``shared`` the loads on a core add up.
    """
    by_place = {(profile.runtime, profile.device): profile for profile in profiles}
    index = {op: number for number, op in enumerate(ids)}
    ends: dict[object, tuple[float, float]] = {}
    used: dict[tuple[str, str], Profile] = {}
    is_spread_known = True
    for number, ops in enumerate(document["stages"]):
        profile = by_place.get((document["runtimes"][number], places[number]))
        if not ops or profile is None:
            continue
        used[profile.runtime, profile.device] = profile
        half = sum(profile.spread_ms[index[op]] for op in ops)
        load = document["loads"][number]
        # A runtime that times an op once knows no spread, whatever it is.
        is_spread_known &= half > 0 or load == 0
        # What the replicas of a stage make of its load, by the streams that they share.
        share = document["periods"][number] / load if "periods" in document and load else 1.0
        low, high = max(0.0, load - half) * share, (load + half) * share
        for core in (shared and resources_of(places[number])) or (number,):
            others = ends.get(core, (0.0, 0.0))
            ends[core] = others[0] + low, others[1] + high
    interval = [max(side) for side in zip(*ends.values(), strict=True)]
    keys = ("runtime", "device", "measured_at")
    return {
        "period_interval": interval if interval and is_spread_known else None,
        "disturbances": [profile.doubt for profile in used.values() if profile.doubt],
        "profiles": [{key: getattr(profile, key) for key in keys} for profile in used.values()],
    }


def leave_out_empty(document: dict[str, Any], alike: bool) -> None:
    """Remove the empty stages, with their devices; ``alike``: all devices cost the same."""
    used = [n for n, ops in enumerate(document["stages"]) if ops]
    for key in ("stages", "replicas", "threads", "runtimes", "loads", "memory", "devices"):
        document[key] = [document[key][n] for n in used]
    if alike:
        document["devices"] = list(range(len(used)))


@dataclass(frozen=True)
class _Writer:
    """Plans as documents; ``order``: of the places along the pipeline the devices."""

    costs: CostModel
    runtime: str | None
    order: tuple[int, ...] = ()
    threads: Sequence[int] = ()
    resources: Sequence[Sequence[str]] = ()

    def in_order(self, order: tuple[int, ...]) -> _Writer:
        """The writer for devices in another order along the pipeline."""
        return replace(self, costs=_on(self.costs, order), order=order)

    def real(self, plan: Plan) -> Plan:
        """The plan with the loads of stages that share cores added up."""
        from autosplit.planner.placement.shared_resources import with_shared_loads

        if not self.resources:
            return plan
        return with_shared_loads(plan, self.costs, [self.resources[d] for d in self.order])

    def split(self, plan: Plan) -> dict[str, Any]:
        """The split of a plan and its costs."""
        devices = list(self.order[: len(plan.stages)])
        runtimes = [name or None for name in plan.runtimes] or [self.runtime] * len(plan.stages)
        return {
            "stages": [[self.costs.ids[i] for i in ops] for ops in plan.stages],
            "replicas": [1] * len(plan.stages),
            "threads": [self.threads[d] if self.threads else 1 for d in devices],
            # A graph file names no runtime, and neither has an empty stage one.
            "runtimes": runtimes,
            "loads": list(plan.loads),
            "period": plan.period,
            "latency": plan.latency,
            "bytes_moved": plan.bytes_moved,
            "memory": list(plan.memory),
            "devices": devices,
        }


def _on(costs: CostModel, order: Sequence[int]) -> CostModel:
    return costs.on_devices(order) if costs.devices else costs
