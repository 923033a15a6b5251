"""What the planner found, as the JSON document of ``plan``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autosplit.planner import CostModel, Plan
    from autosplit.planner.baselines import PlannedBaseline


def document(
    costs: CostModel,
    stages: int,
    *,
    deadline: Callable[[], bool] | None = None,
    allow_empty: bool = False,
    assign: bool = False,
    max_period: float | None = None,
    k_best: int | None = None,
    pareto: bool = False,
    baselines: bool = False,
    count: bool = False,
) -> dict[str, Any]:
    """The document of ``plan -f json`` without ``seconds``; times in the unit of the costs. DESIGN fixes its keys.

    ``assign`` searches the order of the devices too, ``max_period`` asks for the least latency with a period of at most
    that; ``k_best`` splits, the front, what simple splits lose and the counts of legal cuts are added where they are
    asked for. Raises Infeasible where no split fits, ConfigError for numbers that make no sense.
    """
    from autosplit import planner

    limits: dict[str, Any] = {"deadline": deadline, "allow_empty": allow_empty}
    order = tuple(range(stages))
    if assign or (costs.devices or 0) > stages:
        best = planner.plan_assigned(costs, stages, **limits)
        costs, order = costs.on_devices(best.devices) if costs.devices else costs, best.devices
    if max_period is not None:
        best = planner.least_latency(costs, stages, max_period, **limits)
    elif not assign:
        best = planner.plan(costs, stages, **limits)
    proof = {
        "lower_bound": best.lower_bound,
        "gap": best.gap,
        "optimal": best.optimal,
        "note": best.note,
    }
    found = _described(costs, best, order) | proof
    if k_best is not None:
        alike = allow_empty and costs.devices is None
        plans = planner.k_best(costs, stages, k_best, **limits, empty_last=alike)
        found["k_best"] = [_described(costs, p, order) for p in plans]
    if pareto:
        front = planner.pareto_front(costs, stages, **limits)
        found["pareto"] = [_described(costs, p, order) for p in front.plans]
        found["pareto_complete"] = front.complete
    if baselines:
        found["baselines"] = [
            _baseline(b, best) for b in planner.planned_baselines(costs, stages, deadline=deadline)
        ]
    return found | (_counts(costs, stages, deadline) if count else {})


def leave_out_empty(document: dict[str, Any], alike: bool) -> None:
    """Take the empty stages out of every split of a document, with their devices; ``alike``: all devices cost the same."""
    for split in (document, *document.get("k_best", ()), *document.get("pareto", ())):
        _without_empty(split, alike)


def _counts(costs: CostModel, stages: int, deadline: Callable[[], bool] | None) -> dict[str, Any]:
    from autosplit import cuts

    found = {
        "cuts": cuts.count(costs.contraction, deadline=deadline),
        "splits": cuts.count_splits(costs.contraction, stages, deadline=deadline),
    }
    return {key: {"total": count.total, "complete": count.complete} for key, count in found.items()}


def _without_empty(split: dict[str, Any], alike: bool) -> None:
    """Leave the empty stages out of a split, with their devices; of devices that are alike the first are used."""
    kept = [n for n, ops in enumerate(split["stages"]) if ops]
    for key in ("stages", "loads", "memory", "devices"):
        split[key] = [split[key][n] for n in kept]
    if alike:
        split["devices"] = list(range(len(kept)))


def _described(costs: CostModel, plan: Plan, order: tuple[int, ...]) -> dict[str, Any]:
    return {
        "stages": [[costs.ids[i] for i in ops] for ops in plan.stages],
        "loads": list(plan.loads),
        "period": plan.period,
        "latency": plan.latency,
        "bytes_moved": plan.bytes_moved,
        "memory": list(plan.memory),
        "devices": [order[d] for d in range(len(plan.stages))],
    }


def _baseline(baseline: PlannedBaseline, best: Plan) -> dict[str, Any]:
    plan = baseline.plan
    loss = None if plan is None or not best.period else 100 * (plan.period / best.period - 1)
    return {
        "name": baseline.name,
        "period": None if plan is None else plan.period,
        "loss_percent": loss,
        "candidates": baseline.candidates,
        "note": baseline.note,
    }
