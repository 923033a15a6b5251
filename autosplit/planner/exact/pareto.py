"""Splits that no other beats in period, latency and peak memory at once, and the least latency under a period limit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from autosplit.planner.exact.dynamic_program import Chain, Index
from autosplit.planner.exact.layered_network import Edges, Network, build
from autosplit.planner.problem.problem import Array

MOST_LABELS = 200_000


@dataclass(frozen=True)
class _Labels:
    """Ways to reach the nodes of a level: period, latency and peak memory so far (rows of ``cost``), and where from."""

    node: Index
    cost: Array
    parent: Index


def front(chain: Chain) -> tuple[list[list[int]], bool]:
    """Chains of cuts on the front of (period, latency, peak memory), one for each point; whether the front is whole.

    A label that another at the same cut beats or equals in all three leads to no new point (multi-criteria shortest paths,
    Martins 1984). Where labels become too many, those that can still have the least period are kept and the front may miss
    points. Raises OutOfTime, and TooManyStages where the stages are too many to hold.
    """
    network = build(chain, chain.scaled.limit)
    if network is None:
        return [], True
    layers = [_Labels(np.zeros(1, dtype=np.intp), np.zeros((1, 3)), np.zeros(1, dtype=np.intp))]
    ahead, whole = _ahead(network), True
    for edges in network.edges:
        layer = _extend(layers[-1], edges)
        if len(layer.node) > MOST_LABELS:
            whole = False
            reached = np.maximum(layer.cost[:, 0], ahead[len(layers)][layer.node])
            kept = np.sort(np.argsort(reached, kind="stable")[:MOST_LABELS])
            layer = _Labels(layer.node[kept], layer.cost[kept], layer.parent[kept])
        layers.append(layer)
    order = np.lexsort(layers[-1].cost.T[::-1])
    return [_trace(network.cuts, layers, int(end)) for end in order], whole


def _ahead(network: Network) -> list[Array]:
    """For each level and node the least period of the stages that are still to come."""
    found = [np.zeros(len(network.cuts[-1]))]
    for edges, cuts in zip(reversed(network.edges), reversed(network.cuts[:-1]), strict=True):
        least = np.full(len(cuts), math.inf)
        np.minimum.at(least, edges.tail, np.maximum(edges.load, found[-1][edges.head]))
        found.append(least)
    return found[::-1]


def _extend(before: _Labels, edges: Edges) -> _Labels:
    """The undominated labels one level on; labels are ordered by node."""
    first = np.searchsorted(before.node, edges.tail, side="left")
    count = np.searchsorted(before.node, edges.tail, side="right") - first
    edge = np.repeat(np.arange(len(edges.tail)), count)
    label = (
        np.arange(len(edge)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
    )
    old = before.cost[label]
    cost = np.stack(
        [
            np.maximum(old[:, 0], edges.load[edge]),
            old[:, 1] + edges.load[edge],
            np.maximum(old[:, 2], edges.memory[edge]),
        ],
        axis=1,
    )
    node = edges.head[edge]
    order = np.lexsort((cost[:, 2], cost[:, 1], cost[:, 0], node))
    bounds = np.flatnonzero(np.diff(node[order], prepend=-1, append=-1))
    kept = [order[a:b][_undominated(cost[order[a:b]])] for a, b in pairwise(bounds)]
    chosen = np.concatenate(kept) if kept else np.zeros(0, dtype=np.intp)
    return _Labels(node[chosen], cost[chosen], label[chosen])


def _undominated(cost: Array) -> NDArray[np.bool_]:
    """Which rows, in lexicographic order, no earlier row beats or equals in the second and third column."""
    kept = np.zeros(len(cost), dtype=bool)
    second: list[float] = []
    third: list[float] = []
    for n, (_, b, c) in enumerate(cost.tolist()):
        if any(y <= b and z <= c for y, z in zip(second, third, strict=True)):
            continue
        alive = [(y, z) for y, z in zip(second, third, strict=True) if not (b <= y and c <= z)]
        second, third = [y for y, _ in alive] + [b], [z for _, z in alive] + [c]
        kept[n] = True
    return kept


def _trace(cuts: list[list[int]], layers: list[_Labels], end: int) -> list[int]:
    found = []
    for level in range(len(layers) - 1, 0, -1):
        found.append(cuts[level][layers[level].node[end]])
        end = int(layers[level].parent[end])
    return found[:0:-1]
