"""What a study minimises: the period, the latency of an item, the memory of the largest stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

Objective = Literal["throughput", "latency", "memory"]
NAMES: tuple[Objective, ...] = get_args(Objective)
METRICS: Mapping[str, str] = {
    "throughput": "period in ms",
    "latency": "latency in ms",
    "memory": "memory of the largest stage in bytes",
}


def objective_values(
    objectives: Sequence[str], period_ms: float, latency_ms: float, memory_bytes: float
) -> list[float]:
    """The values of a trial that are reported to Optuna, one an objective, all minimised."""
    values = {"throughput": period_ms, "latency": latency_ms, "memory": memory_bytes}
    return [float(values[name]) for name in objectives]


def of_study(attributes: Mapping[str, Any]) -> tuple[str, ...]:
    """The objectives of a stored study; throughput where it names none that are known."""
    config = attributes.get("config")
    named = config.get("objective") if isinstance(config, dict) else None
    known = tuple(n for n in (named if isinstance(named, list) else [named]) if n in NAMES)
    return known or NAMES[:1]
