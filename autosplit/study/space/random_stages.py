"""Stages at random."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from autosplit.cuts import bitset, members, topological
from autosplit.cuts.stages import Stages
from autosplit.planner import CostModel


def random_stages(costs: CostModel, rng: np.random.Generator, count: int) -> Stages:
    """``count`` stages between random places of a random order of the ops."""
    contraction = costs.contraction
    groups = len(contraction.groups)
    rank: list[float] = rng.random(groups).tolist()

    def rank_of(group: int, _: int) -> float:
        return rank[group]

    order = topological(contraction.predecessors, rank_of)
    ends = (0, *sorted(1 + rng.choice(groups - 1, count - 1, replace=False)), groups)
    stage_groups = [bitset(order[first:last]) for first, last in pairwise(ends)]
    return tuple(tuple(members(contraction.expand(g))) for g in stage_groups)
