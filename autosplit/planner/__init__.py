"""The planner: the provably best deployment of a graph for given costs. Numbers in, numbers out.

``partition`` is the one search: a table of costs, a question, and the deployment that is best.
``split`` asks it for splits on devices that are given one by one and may share cores.

Imports numpy, networkx, the standard library, ``autosplit.cuts``, ``deployment``, ``graph``,
``units`` and ``errors``; no file and no clock.
"""

from autosplit.deployment import Option, Row, Stage
from autosplit.planner.partition.costs import CostModel, Kind, Link, RowCosts, Transfer
from autosplit.planner.partition.evaluation import Plan, evaluate, fits
from autosplit.planner.partition.labels import front, k_best
from autosplit.planner.partition.problem import Question
from autosplit.planner.partition.solver import partition
from autosplit.planner.split import plan_split

__all__ = [
    "CostModel",
    "Kind",
    "Link",
    "Option",
    "Plan",
    "Question",
    "Row",
    "RowCosts",
    "Stage",
    "Transfer",
    "evaluate",
    "fits",
    "front",
    "k_best",
    "partition",
    "plan_split",
]
