"""From numbers to splits: the nearest legal cuts to given shares of the work, so that a search may move in shares."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

from autosplit.cuts import members, topological
from autosplit.errors import ConfigError, Infeasible
from autosplit.planner.large import orders
from autosplit.planner.problem.cost_model import CostModel


def decode(costs: CostModel, shares: Sequence[float], branch: float = 0.0) -> tuple[int, ...]:
    """The K-1 nested cuts nearest to ``shares``: for each cut the part of the whole time that lies before it, 0 to 1.

    ``branch``, 0 to 1, chooses how parallel branches are laid out: 0 one after the other, 1 side by side, between them
    a blend. Shares may come in any order; each stage keeps at least one group of ops, so every input decodes to a
    legal split. Raises Infeasible where the graph has fewer groups than stages, ConfigError for a number that is no share.
    """
    for share in (*shares, branch):
        if not 0 <= share <= 1:
            raise ConfigError(f"a share of {share} was given; give numbers from 0 to 1")
    groups, before = costs.contraction.groups, costs.contraction.predecessors
    if len(groups) <= len(shares):
        raise Infeasible(
            f"{len(shares)} cuts asked for, but only {len(groups)} groups of ops can be apart; ask for fewer"
        )
    order = _blend(before, branch)
    done, cumulative = 0, [0.0]
    downsets = [0]
    for g in order:
        done |= groups[g]
        downsets.append(done)
        cumulative.append(cumulative[-1] + sum(_time(costs, i) for i in members(groups[g])))
    places: list[int] = []
    for n, share in enumerate(sorted(shares)):
        nearest = _nearest(cumulative, share * cumulative[-1])
        lowest = places[-1] + 1 if places else 1
        places.append(min(max(nearest, lowest), len(order) - len(shares) + n))
    return tuple(downsets[p] for p in places)


def shares_of(costs: CostModel, cuts: Sequence[int]) -> tuple[float, ...]:
    """The part of the whole time that lies before each cut, what ``decode`` starts from."""
    total = sum(_time(costs, i) for i in range(len(costs.names)))
    return tuple(
        sum(_time(costs, i) for i in members(cut)) / total if total else 0.0 for cut in cuts
    )


def _blend(predecessors: Sequence[int], branch: float) -> list[int]:
    """An order between depth first and breadth first: the ready group whose blended place in both is least."""
    places = []
    for order in (orders.depth_first(predecessors), orders.breadth_first(predecessors)):
        place = [0] * len(order)
        for n, g in enumerate(order):
            place[g] = n
        places.append(place)
    deep, broad = places
    return topological(predecessors, lambda g, when: (1 - branch) * deep[g] + branch * broad[g])


def _time(costs: CostModel, op: int) -> float:
    """The mean time of an op over the devices that can run it."""
    times = [row[op] for row in costs.times if row[op] < math.inf]
    return sum(times) / len(times) if times else 0.0


def _nearest(cumulative: Sequence[float], target: float) -> int:
    after = bisect_left(cumulative, target)
    if after == len(cumulative) or (
        after and target - cumulative[after - 1] < cumulative[after] - target
    ):
        return after - 1
    return after
