"""Decoding: the legal cuts nearest to given shares of the work.

A search can then vary the shares, which are numbers from 0 to 1.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

from autosplit.cuts import members
from autosplit.cuts.orders import breadth_first, depth_first, topological
from autosplit.errors import ConfigError, Infeasible
from autosplit.planner.problem.cost_model import CostModel


def decode(costs: CostModel, shares: Sequence[float], branch: float = 0.0) -> tuple[int, ...]:
    """The K-1 nested cuts nearest to ``shares``, for each cut the part of the whole time before it.

    ``branch``, 0 to 1, chooses how parallel branches are laid out: 0 one after the other, 1 side by
    side, between them a blend. Shares may come in any order. Each stage has at least one group of
    ops, so every input decodes to a legal split.

    Raises:
        Infeasible: The graph has fewer groups than stages.
        ConfigError: A number is not from 0 to 1.
    """
    for share in (*shares, branch):
        if not 0 <= share <= 1:
            raise ConfigError(f"share {share} is out of range; give numbers from 0 to 1")
    groups, before = costs.contraction.groups, costs.contraction.predecessors
    if len(groups) <= len(shares):
        raise Infeasible(
            f"{len(shares)} cuts are too many: only {len(groups)} groups of ops can be separated; "
            "use fewer cuts"
        )
    order = _blend(before, branch)
    times, downsets = [0.0], [0]
    for g in order:
        times.append(times[-1] + sum(_mean_time(costs, i) for i in members(groups[g])))
        downsets.append(downsets[-1] | groups[g])
    nearest = [_nearest(times, share * times[-1]) for share in sorted(shares)]
    return tuple(downsets[place] for place in spread_places(nearest, len(order)))


def spread_places(places: Sequence[int], size: int) -> list[int]:
    """Places along an order of ``size`` groups, spread so that no stage is empty."""
    spread: list[int] = []
    for n, place in enumerate(places):
        lowest = spread[-1] + 1 if spread else 1
        # The later cuts need a group each, too.
        spread.append(min(max(place, lowest), size - len(places) + n))
    return spread


def shares_of(costs: CostModel, cuts: Sequence[int]) -> tuple[float, ...]:
    """The part of the whole time that lies before each cut, the inverse of ``decode``."""
    times = [_mean_time(costs, i) for i in range(len(costs.names))]
    total = sum(times)
    if not total:
        return (0.0,) * len(cuts)
    return tuple(sum(map(times.__getitem__, members(cut))) / total for cut in cuts)


def _blend(predecessors: Sequence[int], branch: float) -> list[int]:
    """An order between depth first and breadth first.

    The ready group whose blended place in both is least comes first.
    """
    deep = {g: place for place, g in enumerate(depth_first(predecessors))}
    broad = {g: place for place, g in enumerate(breadth_first(predecessors))}
    return topological(predecessors, lambda g, step: (1 - branch) * deep[g] + branch * broad[g])


def _mean_time(costs: CostModel, op: int) -> float:
    """The mean time of an op over the devices that can run it."""
    times = [row[op] for row in costs.times if row[op] < math.inf]
    return sum(times) / len(times) if times else 0.0


def _nearest(ascending: Sequence[float], target: float) -> int:
    """The place of the value nearest to ``target``."""
    after = bisect_left(ascending, target)
    if after == len(ascending):
        return after - 1
    if after and target - ascending[after - 1] < ascending[after] - target:
        return after - 1
    return after
