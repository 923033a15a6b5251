"""Several deployments on equal cores: the k best, and the Pareto front.

Labels are partial deployments up to a cut: period, cores, latency and peak memory. One that
another at the same cut equals or beats in all of them leads to no better deployment (multi-criteria
shortest paths, Martins 1984). For the k best a label is left out when k others equal or beat it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from autosplit.cuts import TooManyDownsets
from autosplit.errors import ConfigError
from autosplit.planner.dominance import at_least_as_good
from autosplit.planner.exact.downset_layers import MOST_ARCS, TooManyStages
from autosplit.planner.exact.downset_table import list_rows, merge, ops_between, to_words
from autosplit.planner.exact.layered_search import (
    Arcs,
    CostLabels,
    Network,
    collect_arcs,
    extend_labels,
    parts_by_node,
)
from autosplit.planner.exact.search import row_limit, start_rows
from autosplit.planner.exact.stage_loads import Side, loads
from autosplit.planner.placement.deployments import allowed_rows, plan_deployment, states_before
from autosplit.planner.problem.constraints import FREE, Constraints
from autosplit.planner.problem.cost_model import CostModel
from autosplit.planner.problem.deployment import (
    PlannedDeployment,
    evaluate_deployment,
    sharing,
    useful_replicas,
)
from autosplit.planner.problem.problem import Array, Deadline, Index, OutOfTime, pose
from autosplit.planner.problem.scaling import scale
from autosplit.planner.solve import Front, noted

_MOST_LABELS = 100_000
_FINE = 64.0  # times the best period: costs up to it are exact first
_COARSE = 1e-6  # of the period: costs rounded to more tell too little
_FIRST_STEP = 0.01  # how far above the least period the k best are looked for first


def k_best_deployments(
    costs: CostModel,
    cores: int,
    k: int,
    *,
    thread_counts: Sequence[int] = (1,),
    deadline: Deadline | None = None,
    constraints: Constraints = FREE,
) -> tuple[PlannedDeployment, ...]:
    """The k best deployments in order of period, cores and latency, fewer where there are no more.

    ``note`` of the first tells where a limit or the deadline left it at fewer.

    Raises:
        Infeasible: As ``plan_deployment``.
        ConfigError: ``k`` is below 1, or as ``plan_deployment``.
    """
    if k < 1:
        raise ConfigError(f"k is {k}; give at least 1")
    best = plan_deployment(
        costs, cores, thread_counts=thread_counts, deadline=deadline, constraints=constraints
    )
    if k == 1:
        return (best,)
    plans: list[PlannedDeployment] = []
    period, step = best.period, _FIRST_STEP
    try:
        for factor in (_FINE, math.inf):
            search = _LabelSearch(best, factor, costs, cores, thread_counts, deadline, constraints)
            while len(plans) < k and period < search.top:
                # A low limit leaves few stages to look at.
                period = min(period * (1 + step), search.top) or search.top
                plans = search.deployments(period, k, criteria=3)
                step *= 2
            if len(plans) >= k:
                break
    except (OutOfTime, TooManyStages) as stop:
        text = str(stop) or "the time was up before further deployments were found"
        return (noted(best, text),)
    ranked = sorted(plans, key=lambda plan: (plan.period, plan.cores, plan.latency))[:k]
    return tuple(
        replace(
            plan,
            lower_bound=best.lower_bound,
            optimal=best.optimal and plan.period <= best.period * (1 + 1e-11),
            note=best.note if number == 0 else "",
        )
        for number, plan in enumerate(ranked)
    )


def deployment_front(
    costs: CostModel,
    cores: int,
    *,
    thread_counts: Sequence[int] = (1,),
    deadline: Deadline | None = None,
    constraints: Constraints = FREE,
) -> Front[PlannedDeployment]:
    """One deployment for each point of the front of period, latency and peak memory of a replica.

    Raises:
        Infeasible: As ``plan_deployment``.
    """
    best = plan_deployment(
        costs, cores, thread_counts=thread_counts, deadline=deadline, constraints=constraints
    )
    search = _LabelSearch(best, math.inf, costs, cores, thread_counts, deadline, constraints)
    is_coarse = search.scaled.rounding * search.scaled.unit > _COARSE * best.period > 0
    if is_coarse:
        search = _LabelSearch(best, _FINE, costs, cores, thread_counts, deadline, constraints)
    try:
        plans = search.deployments(search.top, 1, criteria=4)
    except (OutOfTime, TooManyStages) as stop:
        text = str(stop) or "the time was up; this is the deployment of least period"
        return Front((best,), False, text)
    points = [(plan.period, plan.latency, max(plan.memory)) for plan in plans]
    front: dict[tuple[float, float, float], PlannedDeployment] = {}
    for plan, point in sorted(zip(plans, points, strict=True), key=lambda pair: pair[1]):
        if not any(at_least_as_good(other, point) for other in front):
            front[point] = plan
    bounded = [
        replace(plan, lower_bound=best.lower_bound, optimal=plan.period <= best.lower_bound)
        for plan in front.values()
    ]
    return Front(tuple(bounded), search.complete and not is_coarse, best.note)


class _LabelSearch:
    """The deployments of a problem by labels; a label is a partial deployment up to a cut.

    Its criteria are period, cores, latency and peak memory; the replicas and threads of its last
    stage are stored beside them. Costs are exact for periods up to ``factor`` times that of
    ``best``, whose cuts are among those searched.
    """

    def __init__(
        self,
        best: PlannedDeployment,
        factor: float,
        costs: CostModel,
        cores: int,
        thread_counts: Sequence[int],
        deadline: Deadline | None,
        constraints: Constraints,
    ) -> None:
        self.problem = pose(costs, len(thread_counts), constraints, allow_empty=True)
        self.cores, self.thread_counts, self.deadline = cores, tuple(thread_counts), deadline
        limit = best.period * factor if best.period else math.inf
        self.scaled = scale(self.problem, cores * limit)
        # A period that no deployment exceeds that is looked for.
        self.top = min(limit, self.scaled.top)
        try:
            words = list_rows(self.problem.contraction.predecessors, row_limit(self.problem))
            self.complete = True
        except TooManyDownsets:
            cuts = to_words(self.problem.group_cuts(best), self.problem.size)
            words, self.complete = merge(start_rows(self.problem), cuts), False
        words = words[allowed_rows(self.problem, words)]
        # The empty cut is the first row and the full one the last.
        self.words = words[np.argsort(Side(self.scaled, words, 0).count, kind="stable")]

    def deployments(self, limit: float, count: int, criteria: int) -> list[PlannedDeployment]:
        """All deployments within a period that fewer than ``count`` others equal or beat.

        Compared are the first ``criteria`` of period, cores, latency and peak memory.

        Raises:
            OutOfTime: The deadline passed.
            TooManyStages: There are too many stages to store.
        """

        def cost_of(cost: Array, arcs: Arcs, arc: Index) -> Array:
            period, cores, latency, memory, *shape = arcs.weights[:, arc]
            return np.stack(
                [
                    np.maximum(cost[0], period),
                    cost[1] + cores,
                    cost[2] + latency,
                    np.maximum(cost[3], memory),
                    *shape,
                ]
            )

        def select(layer: int, node: Index, cost: Array) -> Index:
            order = np.lexsort((*cost[criteria - 1 :: -1], node))
            order = order[cost[1, order] <= self.cores]
            parts = parts_by_node(order, node)
            chosen = [self._undominated(part, cost[:criteria], count) for part in parts]
            return np.concatenate([np.zeros(0, dtype=np.intp), *chosen])

        layers = extend_labels(self._network(limit / self.scaled.unit), 6, cost_of, select)
        return [self._deployment(layers, label) for label in range(len(layers[-1].node))]

    def _undominated(self, labels: Index, cost: Array, count: int) -> Index:
        """The labels, in lexicographic order, that fewer than ``count`` others equal or beat."""
        if self.deadline is not None and self.deadline():
            raise OutOfTime
        best_costs = np.empty((len(labels), len(cost)))
        chosen: list[int] = []
        for label in labels.tolist():
            better = (best_costs[: len(chosen)] <= cost[:, label]).all(axis=1)
            if better.sum() < count:
                best_costs[len(chosen)] = cost[:, label]
                chosen.append(label)
        if len(chosen) > _MOST_LABELS:
            raise TooManyStages("too many deployments are alike")
        return np.array(chosen, dtype=np.intp)

    def _network(self, limit: float) -> Network:
        """Stages within ``limit`` units in every shape, again for each stage of a deployment."""
        last = len(self.words) - 1
        arcs = collect_arcs(self._stages(limit), len(self.words), rows=6)
        # A finished deployment stays at the full cut.
        stay = np.array([last], dtype=np.intp), np.array([last], dtype=np.intp), np.zeros((6, 1))
        stages = (arcs.tail, arcs.head, arcs.weights)
        inner = collect_arcs([stages, stay], len(self.words), rows=6)
        ending = inner.keep(inner.head == last)
        ending = replace(ending, head=np.zeros_like(ending.head))
        first = arcs.keep(arcs.tail == 0)
        rows = np.arange(len(self.words))
        if self.cores == 1:
            single = first.keep(first.head == last)
            single = replace(single, head=np.zeros_like(single.head), tails=1)
            return Network([rows[:1], rows[-1:]], [single])
        between = [inner] * (self.cores - 2)
        nodes = [rows[:1], *[rows] * (self.cores - 1), rows[-1:]]
        return Network(nodes, [replace(first, tails=1), *between, ending])

    def _stages(self, limit: float) -> Iterator[tuple[Index, Index, Array]]:
        stored, streams = 0, self.problem.costs.streams
        before = states_before(self.problem, self.words)
        for row, threads in enumerate(self.thread_counts):
            side = Side(self.scaled, self.words, row)
            most = self.cores // threads
            for block in loads(self.scaled, row, side, side, min(most * limit, self.scaled.limit)):
                if self.deadline is not None and self.deadline():
                    raise OutOfTime
                memory = block.memory()
                has_state = before[block.right] > before[block.left, None]
                for replicas in range(1, most + 1):
                    divisor = sharing(replicas, streams, has_state)
                    fits = block.load <= np.minimum(divisor * limit, self.scaled.limit)
                    # Of equal replicas of streams those are left out that have none.
                    fits &= ~has_state | (useful_replicas(replicas, streams) == replicas)
                    i, j = np.nonzero(fits)
                    stored += len(i)
                    if stored > MOST_ARCS:
                        raise TooManyStages(f"more than {MOST_ARCS} stages lie within the limit")
                    load, shape = block.load[i, j], np.ones((1, len(i)))
                    weights = [load / divisor[i, j], shape[0] * (replicas * threads), load]
                    weights += [memory[i, j], shape[0] * replicas, shape[0] * threads]
                    yield block.left.start + i, block.right.start + j, np.stack(weights)

    def _deployment(self, layers: Sequence[CostLabels], label: int) -> PlannedDeployment:
        """The deployment of a label at the full cut."""
        stages, replicas, threads = [], [], []
        for layer, before in zip(reversed(layers[1:]), reversed(layers[:-1]), strict=True):
            shape = layer.cost[4:, label].astype(int).tolist()
            end = len(self.words) - 1 if layer is layers[-1] else int(layer.node[label])
            label = int(layer.parent[label])
            if shape[0]:
                start = before.node[label]
                stages.append(ops_between(self.problem, self.words[start], self.words[end]))
                replicas.append(shape[0])
                threads.append(shape[1])
        shapes = replicas[::-1], threads[::-1]
        return evaluate_deployment(self.problem.costs, stages[::-1], *shapes, self.thread_counts)
