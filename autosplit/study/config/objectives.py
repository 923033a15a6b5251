"""What a study minimises: the period, or the latency of an item."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

Objective = Literal["throughput", "latency"]
NAMES: tuple[Objective, ...] = get_args(Objective)
METRICS: Mapping[str, str] = {"throughput": "period in ms", "latency": "latency in ms"}


def objective_value(objective: str, period_ms: float, latency_ms: float) -> float:
    """The value of a trial that is reported to Optuna and minimised."""
    return float(period_ms if objective == "throughput" else latency_ms)


def objective_of(config: Mapping[str, Any]) -> str:
    """The objective of a stored study file; throughput where it names none that is known."""
    named = config.get("objective")
    return next((name for name in NAMES if name == named), NAMES[0])
