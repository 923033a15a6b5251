"""The documents of ``plan``: the plan, its proof, and what was asked for beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autosplit.planner import CostModel, Plan
    from autosplit.planner.baselines import PlannedBaseline


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
    max_period: float | None = None,
    k_best: int | None = None,
    pareto: bool = False,
    baselines: bool = False,
    count: bool = False,
) -> dict[str, Any]:
    """The document of ``plan -f json`` without ``seconds``, whose keys stay as they are.

    Times are in the unit of the costs. ``runtime``: what the costs were measured in, None for those
    of a graph file; ``threads``: of each device, by default 1; ``resources``: of each device its
    cores, by default its own. ``assign`` searches the order of the
    devices too; ``max_period`` asks for the least latency under a bound on the period. The others
    add the ``k_best`` splits, the Pareto front, what simple splits lose, and the numbers of legal
    cuts.

    Raises:
        Infeasible: no split meets the limits.
        ConfigError: a number makes no sense.
    """
    from autosplit import cuts, planner
    from autosplit.planner.placement.shared_resources import slowed, with_shared_loads

    def real(plan: Plan) -> Plan:
        """The plan with the loads of stages that share cores added up."""
        cores = [resources[d] for d in order] if resources else [()] * len(plan.stages)
        return with_shared_loads(plan, real_costs, cores)

    def split(plan: Plan) -> dict[str, Any]:
        return _split(costs, plan, runtime, order, threads)

    real_costs, costs = costs, slowed(costs, resources) if resources else costs
    limits: dict[str, Any] = {"deadline": deadline, "allow_empty": allow_empty}
    order = tuple(range(stages))
    # More devices than stages: which ones are used is a part of the question.
    if assign or (costs.devices or 0) > stages:
        best = planner.plan_assigned(costs, stages, **limits)
        order = best.devices
        costs = costs.on_devices(order) if costs.devices else costs
        real_costs = real_costs.on_devices(order) if real_costs.devices else real_costs
    if max_period is not None:
        best = planner.least_latency(costs, stages, max_period, **limits)
    elif not assign:
        best = planner.plan(costs, stages, **limits)
    best = real(best)
    result = split(best)
    result["lower_bound"], result["gap"] = best.lower_bound, best.gap
    result["optimal"], result["note"] = best.optimal, best.note
    if k_best is not None:
        # devices that cost the same are used from the first on
        empty_last = allow_empty and costs.devices is None
        plans = planner.k_best(costs, stages, k_best, **limits, empty_last=empty_last)
        result["k_best"] = list(map(split, sorted(map(real, plans), key=lambda p: p.rank)))
    if pareto:
        front = planner.pareto_front(costs, stages, **limits)
        result["pareto"] = [split(real(plan)) for plan in front.plans]
        result["pareto_complete"] = front.complete
    if baselines:
        simple = planner.planned_baselines(costs, stages, deadline=deadline)
        result["baselines"] = [
            _baseline(replace(baseline, plan=baseline.plan and real(baseline.plan)), best)
            for baseline in simple
        ]
    if count:
        result["cuts"] = asdict(cuts.count(costs.contraction, deadline=deadline))
        splits = cuts.count_splits(costs.contraction, stages, deadline=deadline)
        result["splits"] = asdict(splits)
    return result


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

    best = planner.plan_deployment(costs, cores, thread_counts=thread_counts, deadline=deadline)
    split = _split(costs, best, runtime)
    del split["devices"]
    return {
        **split,
        "replicas": list(best.replicas),
        "threads": list(best.threads),
        "lower_bound": best.lower_bound,
        "gap": best.gap,
        "optimal": best.optimal,
        "note": best.note,
    }


def leave_out_empty(document: dict[str, Any], alike: bool) -> None:
    """Remove the empty stages of every split, with their devices; ``alike``: all cost the same."""
    for split in (document, *document.get("k_best", ()), *document.get("pareto", ())):
        used = [n for n, ops in enumerate(split["stages"]) if ops]
        for key in ("stages", "replicas", "threads", "runtimes", "loads", "memory", "devices"):
            split[key] = [split[key][n] for n in used]
        if alike:
            split["devices"] = list(range(len(used)))


def _split(
    costs: CostModel,
    plan: Plan,
    runtime: str | None,
    order: Sequence[int] = (),
    threads: Sequence[int] = (),
) -> dict[str, Any]:
    devices = list(order[: len(plan.stages)])
    return {
        "stages": [[costs.ids[i] for i in ops] for ops in plan.stages],
        "replicas": [1] * len(plan.stages),
        "threads": [threads[d] if threads else 1 for d in devices],
        # A graph file names no runtime, and neither has an empty stage one.
        "runtimes": [name or None for name in plan.runtimes] or [runtime] * len(plan.stages),
        "loads": list(plan.loads),
        "period": plan.period,
        "latency": plan.latency,
        "bytes_moved": plan.bytes_moved,
        "memory": list(plan.memory),
        "devices": devices,
    }


def _baseline(baseline: PlannedBaseline, best: Plan) -> dict[str, Any]:
    period, loss = None, None
    if baseline.plan is not None:
        period = baseline.plan.period
        if best.period:
            # A period of zero has no ratio: all ops are free.
            loss = 100 * (period / best.period - 1)
    return {
        "name": baseline.name,
        "period": period,
        "loss_percent": loss,
        "candidates": baseline.candidates,
        "note": baseline.note,
    }
