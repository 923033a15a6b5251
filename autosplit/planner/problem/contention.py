"""Costs by how many stages run at once: stages that share a machine slow each other down."""

from __future__ import annotations

from dataclasses import dataclass

from autosplit.planner import CostModel


@dataclass(frozen=True)
class Crowd:
    """``costs`` of one stage by itself, of two at once, and so on; a single model holds for any number."""

    costs: tuple[CostModel, ...]

    def of(self, used: int) -> CostModel:
        """The costs where ``used`` stages run."""
        return self.costs[min(used, len(self.costs)) - 1]


def costs_of(costs: CostModel | Crowd, used: int) -> CostModel:
    """The costs where ``used`` stages run, of costs that may not depend on it."""
    return costs.of(used) if isinstance(costs, Crowd) else costs
