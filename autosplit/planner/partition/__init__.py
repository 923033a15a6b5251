"""The planner: the provably best deployment of a graph for given costs. Numbers in, numbers out.

Read in this order:

- ``costs``: the cost table, and what a stage costs in each of its rows.
- ``problem``: what is asked (``Question``), and the arrays that a search works on.
- ``evaluation``: what a given deployment costs, in plain Python.
- ``bound``: a proven bound of the period. ``cut_set``: which cuts are searched.
- ``stage_loads``: the loads of all stages between some cuts. ``search``: the one search over them.
- ``partition``: the best deployment. ``explain``: why there is none.

Imports numpy, networkx, the standard library, ``autosplit.cuts``, ``graph``, ``deployment``,
``units`` and ``errors``; no file and no clock.
"""

from autosplit.planner.partition.costs import CostModel, Kind, Link, RowCosts, Transfer
from autosplit.planner.partition.evaluation import Plan, evaluate, fits
from autosplit.planner.partition.problem import Question
from autosplit.planner.partition.solver import partition

__all__ = [
    "CostModel",
    "Kind",
    "Link",
    "Plan",
    "Question",
    "RowCosts",
    "Transfer",
    "evaluate",
    "fits",
    "partition",
]
