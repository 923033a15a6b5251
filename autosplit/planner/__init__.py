"""The planner: the provably best deployment of a graph for given costs. Numbers in, numbers out.

Read in this order:

- ``costs``: the cost table, and what a stage costs in each of its rows.
- ``problem``: the question to the planner, and the arrays that a search works on.
- ``evaluation``: what a given deployment costs, in plain Python.
- ``bound``: a proven bound of the period. ``cut_set``: which cuts are searched.
- ``stage_loads``: the loads of all stages between some cuts. ``search``: the one search over them.
- ``solver``: ``partition`` finds the best deployment. ``labels``: the k best ones and the Pareto
  front of period and latency. ``explain``: the errors where there is no deployment.
- ``split``: splits on devices that are given one by one and may share cores.
- ``moves`` and ``batch``, for studies: neighbours of a deployment, and the costs of many at once.
- ``workload``: simulates a deployment under load, and finds its goodput within a latency limit.

Imports numpy, networkx, the standard library, ``autosplit.cuts``, ``deployment``, ``graph``,
``units``, ``lazy`` and ``errors``; it opens no file and reads no clock.
"""

from autosplit.deployment import Option, Row, Stage
from autosplit.planner.costs import CostModel, Kind, Link, RowCosts, Transfer
from autosplit.planner.evaluation import Plan, evaluate, fits
from autosplit.planner.labels import front, k_best
from autosplit.planner.problem import Question
from autosplit.planner.solver import partition
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
