"""Proven lower bounds of the period that need no list of downsets."""

from __future__ import annotations

import numpy as np

from autosplit.planner.problem.problem import Array, Problem


def simple_bound(problem: Problem) -> float:
    """The larger of two bounds: the work shared out evenly over all devices, and the largest group on its best device.

    With unequal devices every convex combination of the loads is at most the period; each op then counts at its
    cheapest weighted device. The weights tried are even ones and the devices' speeds.
    """
    p = problem
    times = np.stack([p.at(p.times, d) for d in range(p.stages)])
    overheads = np.array([p.overheads[d if len(p.overheads) > 1 else 0] for d in range(p.stages)])
    fixed = np.zeros(p.stages) if p.allow_empty else overheads
    largest = float((times + overheads[:, None]).min(axis=0).max(initial=0.0))
    sums = np.where(np.isfinite(times), times, 0.0).sum(axis=1)
    speed = 1 / np.maximum(sums, sums.max(initial=0.0) * 1e-9 + 1e-300)
    shares = (np.full(p.stages, 1 / p.stages), speed / speed.sum())
    return max(largest, *(_weighted(times, fixed, share) for share in shares))


def _weighted(times: Array, fixed: Array, share: Array) -> float:
    return float((times * share[:, None]).min(axis=0).sum() + (fixed * share).sum())
