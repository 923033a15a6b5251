"""Contention: op costs as a function of the number of concurrent stages."""

from __future__ import annotations

from dataclasses import dataclass

from autosplit.planner.problem.cost_model import CostModel


@dataclass(frozen=True)
class ContentionCosts:
    """``costs`` of one stage by itself, of two at once, and so on.

    The last one holds for any larger number, so a single model holds for every number of stages.
    """

    costs: tuple[CostModel, ...]

    def at(self, active: int) -> CostModel:
        """The costs where ``active`` stages run at once."""
        return self.costs[min(active, len(self.costs)) - 1]


def costs_at(costs: CostModel | ContentionCosts, active: int) -> CostModel:
    """The costs where ``active`` stages run, of costs that may not depend on it."""
    return costs.at(active) if isinstance(costs, ContentionCosts) else costs
