"""The planner: the provably best deployment of a graph for given costs. Numbers in, numbers out.

Read in this order:

- ``costs``: the cost table, and what a stage costs in each of its rows.
- ``problem``: what is asked (``Question``), and the arrays that a search works on.
- ``evaluation``: what a given deployment costs, in plain Python.
- ``bound``: a proven bound of the period. ``cut_set``: which cuts are searched.
- ``stage_loads``: the loads of all stages between some cuts. ``search``: the one search over them.
- ``solver``: ``partition``, the best deployment. ``labels``: the k best, and those on the front of
  period and latency. ``explain``: why there is none.
- ``split``: splits on devices that are given one by one and may share cores.
- ``moves`` and ``batch``: deployments near one, and the costs of many at once, for a study.
- ``workload``: what a deployment does under load, simulated, and how much it serves within a limit.

Imports numpy, networkx, the standard library, ``autosplit.cuts``, ``deployment``, ``graph``,
``units`` and ``errors``; no file and no clock.
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
