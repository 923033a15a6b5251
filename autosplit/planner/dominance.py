"""Pareto dominance: comparing points whose coordinates are all to be small.

A point dominates another that is nowhere smaller and somewhere larger. The points that no other
dominates are the Pareto front.
"""

from __future__ import annotations

import math
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


def volume_gain(point: Point, points: Sequence[Point], reference: Point) -> float:
    """By how much a point enlarges the volume that some points dominate, up to ``reference``.

    Its own box, less what the others cover of it (While, Bradstreet and Barone, A fast way of
    calculating exact hypervolumes, IEEE Transactions on Evolutionary Computation, 2012).
    """
    box = math.prod(max(0.0, r - x) for x, r in zip(point, reference, strict=True))
    if not box or not points:
        return box
    return box - hypervolume([tuple(map(max, point, p)) for p in points], reference)


def hypervolume(points: Sequence[Point], reference: Point) -> float:
    """The volume that some points dominate, up to ``reference``."""
    best = [points[n] for n in front(points)]
    return math.fsum(volume_gain(p, best[n + 1 :], reference) for n, p in enumerate(best))
