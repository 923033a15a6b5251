"""The planner: the provably best split of a graph for a cost model. Numbers in, numbers out.

Read in this order:

- ``problem``: what a split costs (``cost_model``, ``evaluation``), what it must satisfy
  (``constraints``), and the arrays that a search works on.
- ``exact``: the layered search over all legal cuts, and what it finds: the best split, the k best,
  the Pareto front.
- ``near_orders``: graphs with too many cuts to list: those near some op orders.
- ``solve``: the questions, answered by the packages above. ``explain``: which conditions clash.
- ``placement``: stages with replicas and threads on equal cores (``deployments``) and on cores of
  several kinds (``core_kinds``), replicas on unlike devices (``unlike_devices``), the order of
  unequal devices, devices that share cores, and stages that stay empty.
- ``batch``: the same search for many cost models, as a study asks after each trial.
- ``decode``: from shares of the work to a split.

Imports numpy, networkx, the standard library, ``autosplit.cuts``, ``graph`` and ``errors``; no file
and no clock.
"""

from autosplit.planner.decode import decode, shares_of
from autosplit.planner.placement.core_kinds import plan_cores
from autosplit.planner.placement.deployment_lists import deployment_front, k_best_deployments
from autosplit.planner.placement.deployments import plan_deployment
from autosplit.planner.placement.device_order import plan_assigned
from autosplit.planner.placement.shared_resources import plan_shared
from autosplit.planner.placement.unlike_devices import plan_devices
from autosplit.planner.problem.constraints import FREE, Constraints
from autosplit.planner.problem.cost_model import CostModel, Link, Transfer
from autosplit.planner.problem.deployment import PlannedDeployment, evaluate_deployment
from autosplit.planner.problem.evaluation import Plan, evaluate, evaluate_cuts
from autosplit.planner.problem.graph_file import from_workload, to_workload
from autosplit.planner.solve import Front, k_best, least_latency, pareto_front, plan

__all__ = [
    "FREE",
    "Constraints",
    "CostModel",
    "Front",
    "Link",
    "Plan",
    "PlannedDeployment",
    "Transfer",
    "decode",
    "deployment_front",
    "evaluate",
    "evaluate_cuts",
    "evaluate_deployment",
    "from_workload",
    "k_best",
    "k_best_deployments",
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
