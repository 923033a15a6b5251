"""Splits that no other beats in period, latency and peak memory at once."""

from __future__ import annotations

import numpy as np

from autosplit.planner.exact.downset_layers import DownsetLayers
from autosplit.planner.exact.layered_search import Arcs, extend_labels, parts_by_node, trace
from autosplit.planner.problem.problem import Array, Index

MOST_LABELS = 200_000


def front(layers: DownsetLayers) -> tuple[list[list[int]], bool]:
    """The cuts of one path for each point of the front, and whether the front is complete.

    A label that another at the same cut beats or equals in all three leads to no new point
    (multi-criteria shortest paths, Martins 1984). Where labels become too many, those that can
    still have the least period are kept and the front may miss points.

    Raises:
        OutOfTime: The deadline passed.
        TooManyStages: The stages are too many to store.
    """
    network = layers.network(layers.scaled.limit)
    if network is None:
        return [], True
    period_to_go, complete = network.least_to_go(np.maximum), True

    # A label's cost: period, latency and peak memory so far.
    def cost_of(cost: Array, arcs: Arcs, arc: Index) -> Array:
        load, _, memory = arcs.weights[:, arc]
        return np.stack([np.maximum(cost[0], load), cost[1] + load, np.maximum(cost[2], memory)])

    def select(layer: int, node: Index, cost: Array) -> Index:
        nonlocal complete
        order = np.lexsort((cost[2], cost[1], cost[0], node))
        parts = parts_by_node(order, node)
        labels = [label for part in parts for label in _undominated(part, cost)]
        chosen = np.array(labels, dtype=np.intp)
        if len(chosen) > MOST_LABELS:
            complete = False
            period = np.maximum(cost[0, chosen], period_to_go[layer][node[chosen]])
            chosen = chosen[np.sort(np.argsort(period, kind="stable")[:MOST_LABELS])]
        return chosen

    paths = extend_labels(network, 3, cost_of, select)
    ends = np.lexsort(paths[-1].cost[::-1])
    return [layers.cuts(network.rows(trace(paths, int(end)))) for end in ends], complete


def _undominated(labels: Index, cost: Array) -> list[int]:
    """The labels, in lexicographic order of their cost, that no earlier one beats or equals."""
    chosen: list[int] = []
    # The first criterion is ascending, so only the other two decide. Points beaten by a later
    # label are dropped: that label beats whatever they would beat.
    points: list[tuple[float, float]] = []
    for label, second, third in zip(labels.tolist(), *cost[1:, labels].tolist(), strict=True):
        if not any(y <= second and z <= third for y, z in points):
            points = [(y, z) for y, z in points if y < second or z < third]
            points.append((second, third))
            chosen.append(label)
    return chosen
