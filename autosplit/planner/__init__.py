"""The planner: the provably best split of a graph for a cost model. Numbers in, numbers out; no file, no clock.

The searches, which need numpy, are imported at their first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from autosplit.planner.decode import decode, shares_of
from autosplit.planner.problem.constraints import FREE, Constraints
from autosplit.planner.problem.cost_model import CostModel, Link, Transfer
from autosplit.planner.problem.evaluation import Plan, evaluate, evaluate_cuts
from autosplit.planner.problem.graph_file import from_workload, to_workload

if TYPE_CHECKING:
    from autosplit.planner.baselines import Baseline, baselines
    from autosplit.planner.placement.device_order import plan_assigned
    from autosplit.planner.solve import Front, k_best, least_latency, pareto_front, plan

_LATE = {
    "Baseline": "baselines",
    "Front": "solve",
    "baselines": "baselines",
    "k_best": "solve",
    "least_latency": "solve",
    "pareto_front": "solve",
    "plan": "solve",
    "plan_assigned": "placement.device_order",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LATE[name]}"), name)


__all__ = [
    "FREE",
    "Baseline",
    "Constraints",
    "CostModel",
    "Front",
    "Link",
    "Plan",
    "Transfer",
    "baselines",
    "decode",
    "evaluate",
    "evaluate_cuts",
    "from_workload",
    "k_best",
    "least_latency",
    "pareto_front",
    "plan",
    "plan_assigned",
    "shares_of",
    "to_workload",
]
