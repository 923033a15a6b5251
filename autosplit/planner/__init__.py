"""The planner: the provably best split of a graph for a cost model. Numbers in, numbers out.

Read in this order:

- ``partition``: the one search. A table of costs, a question, and the deployment that is best.
- ``problem``: the costs of devices or numbers of threads, what a split or a deployment costs under
  them, and the graph file.
- ``solve``: questions about splits and deployments, answered by ``partition``.
- ``placement``: devices that share cores, and stages that stay empty.
- ``batch``: the same for many cost models, as a study asks after each trial.
- ``decode``: from shares of the work to a split.

Imports numpy, networkx, the standard library, ``autosplit.cuts``, ``deployment``, ``graph``,
``units`` and ``errors``; no file and no clock.
"""

from autosplit.planner.decode import decode, shares_of
from autosplit.planner.partition.costs import Link, Transfer
from autosplit.planner.placement.shared_resources import plan_shared
from autosplit.planner.problem.cost_model import CostModel
from autosplit.planner.problem.deployment import PlannedDeployment, evaluate_deployment
from autosplit.planner.problem.evaluation import Plan, evaluate, evaluate_cuts
from autosplit.planner.problem.graph_file import from_workload, to_workload
from autosplit.planner.solve import (
    k_best,
    least_latency,
    pareto_front,
    plan,
    plan_assigned,
    plan_cores,
    plan_deployment,
    plan_devices,
)

__all__ = [
    "CostModel",
    "Link",
    "Plan",
    "PlannedDeployment",
    "Transfer",
    "decode",
    "evaluate",
    "evaluate_cuts",
    "evaluate_deployment",
    "from_workload",
    "k_best",
    "least_latency",
    "pareto_front",
    "plan",
    "plan_assigned",
    "plan_cores",
    "plan_deployment",
    "plan_devices",
    "plan_shared",
    "shares_of",
    "to_workload",
]
