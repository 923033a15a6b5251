"""Contention: op costs as a function of the number of busy devices."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from autosplit.planner.partition.problem import Array
from autosplit.planner.problem.cost_model import CostModel
from autosplit.planner.problem.runtime_costs import Rows, least_costs, of_device


@dataclass(frozen=True)
class ContentionCosts:
    """Costs by how many of ``most`` devices or cores are busy.

    ``alone`` are those where one is, ``all_busy`` those where all are. They differ in times,
    between which any other number is interpolated; or they are one model, which holds for all.
    """

    alone: CostModel
    all_busy: CostModel
    most: int = 1

    @property
    def varies(self) -> bool:
        """Whether the costs depend on the number at all."""
        return self.alone is not self.all_busy

    def level(self, busy: Array | int) -> Array:
        """From 0 for one to 1 for all."""
        if self.most == 1:
            return np.ones_like(busy, dtype=np.float64)
        return (np.asarray(busy, dtype=np.float64) - 1) / (self.most - 1)

    def at(self, busy: int) -> CostModel:
        """The costs where ``busy`` of them are."""
        level = float(self.level(busy))
        if level in (0, 1) or not self.varies:
            return self.all_busy if level else self.alone
        if busy not in self._between:
            self._between[busy] = _between(self.alone, self.all_busy, level)
        return self._between[busy]

    @cached_property
    def _between(self) -> dict[int, CostModel]:
        """The costs interpolated so far: every candidate with as many busy asks for them."""
        return {}


def costs_at(costs: CostModel | ContentionCosts, busy: int) -> CostModel:
    """The costs where ``busy`` devices are, of costs that may not depend on it."""
    return costs.at(busy) if isinstance(costs, ContentionCosts) else costs


def _between(low: CostModel, high: CostModel, level: float) -> CostModel:
    """The costs between two models that differ in times."""
    if not high.runtimes:
        return replace(high, times=_rows_between(low.times, high.times, level))
    runtimes = []
    for alone, busy in zip(low.runtimes, high.runtimes, strict=True):
        runtimes.append(replace(busy, times=_rows_between(alone.times, busy.times, level)))
    times, overheads = least_costs(runtimes)
    return replace(high, times=times, overheads=overheads, runtimes=tuple(runtimes))


def _rows_between(low: Rows, high: Rows, level: float) -> Rows:
    rows = []
    for device in range(max(len(low), len(high))):
        pairs = zip(of_device(low, device), of_device(high, device), strict=True)
        # The difference of two infinite times would be none.
        rows.append(tuple(a if a == math.inf else a + level * (b - a) for a, b in pairs))
    return tuple(rows)
