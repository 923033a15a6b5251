"""Pareto dominance: comparing points whose coordinates are all to be small.

A point dominates another that is nowhere smaller and somewhere larger. The points that no other
dominates are the Pareto front.
"""

from __future__ import annotations

from collections.abc import Sequence

Point = Sequence[float]


def dominates(a: Point, b: Point) -> bool:
    """Whether ``a`` is nowhere larger than ``b`` and somewhere smaller."""
    return tuple(a) != tuple(b) and at_least_as_good(a, b)


def at_least_as_good(a: Point, b: Point) -> bool:
    """Whether ``a`` is nowhere larger than ``b``."""
    return all(x <= y for x, y in zip(a, b, strict=True))


def front(points: Sequence[Point]) -> list[int]:
    """The places of the points that no other dominates; equal ones are all among them."""
    return [n for n, p in enumerate(points) if not any(dominates(q, p) for q in points)]
