"""What a study minimises: the period, the latency of one item, the memory of the largest stage, or several of them.

Values of several objectives are compared point by point: a point is dominated where another is at least as good in all and
better in one; those that are not dominated are the Pareto front.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

Objective = Literal["throughput", "latency", "memory"]
NAMES: tuple[Objective, ...] = get_args(Objective)
METRICS: Mapping[str, str] = {
    "throughput": "period in ms",
    "latency": "latency in ms",
    "memory": "memory of the largest stage in bytes",
}
Point = Sequence[float]


def values(
    objectives: Sequence[str], period_ms: float, latency_ms: float, memory_bytes: float
) -> list[float]:
    """What a trial is told with: a value for each objective, all to be minimised."""
    known = {"throughput": period_ms, "latency": latency_ms, "memory": memory_bytes}
    return [float(known[name]) for name in objectives]


def of_study(attributes: Mapping[str, Any]) -> tuple[str, ...]:
    """The objectives of a stored study; throughput where it names none that are known."""
    config = attributes.get("config")
    named = config.get("objective") if isinstance(config, dict) else None
    found = tuple(name for name in (named if isinstance(named, list) else [named]) if name in NAMES)
    return found or NAMES[:1]


def front(points: Sequence[Point]) -> list[int]:
    """The places of the points that no other dominates; equal ones are all among them."""
    return [n for n, p in enumerate(points) if not any(_dominates(q, p) for q in points)]


def _dominates(a: Point, b: Point) -> bool:
    return tuple(a) != tuple(b) and all(x <= y for x, y in zip(a, b, strict=True))


def gain(point: Point, points: Sequence[Point], reference: Point) -> float:
    """By how much a point enlarges the volume that some points dominate, up to ``reference``.

    Its own box, less what the others cover of it (While, Bradstreet and Barone, A fast way of calculating exact
    hypervolumes, IEEE Transactions on Evolutionary Computation, 2012).
    """
    box = math.prod(max(0.0, r - x) for x, r in zip(point, reference, strict=True))
    if not box or not points:
        return box
    return box - hypervolume([tuple(map(max, point, p)) for p in points], reference)


def hypervolume(points: Sequence[Point], reference: Point) -> float:
    """The volume that some points dominate, up to ``reference``."""
    best = [points[n] for n in front(points)]
    return math.fsum(gain(p, best[n + 1 :], reference) for n, p in enumerate(best))
