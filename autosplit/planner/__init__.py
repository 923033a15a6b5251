"""The planner: the provably best split of a graph for a cost model. Numbers in, numbers out; no file, no clock.

The searches, which need numpy, are imported at their first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from autosplit.planner.constraints import FREE, Constraints
from autosplit.planner.costs import CostModel, Link, Transfer
from autosplit.planner.decode import decode, shares_of
from autosplit.planner.split import Plan, evaluate, evaluate_cuts
from autosplit.planner.workload import from_workload, to_workload

if TYPE_CHECKING:
    from autosplit.planner.solve import k_best, plan

_LATE = {"plan": "solve", "k_best": "solve"}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LATE[name]}"), name)


__all__ = [
    "FREE",
    "Constraints",
    "CostModel",
    "Link",
    "Plan",
    "Transfer",
    "decode",
    "evaluate",
    "evaluate_cuts",
    "from_workload",
    "k_best",
    "plan",
    "shares_of",
    "to_workload",
]
