"""The k best splits, in order of period, latency and bytes moved.

A path that is best up to some cut need not be so to the end, because the period is a maximum. So
the periods are taken one by one, ascending: among the paths of exactly that period latency and
bytes add up, and the best k to each node are enough.
"""

from __future__ import annotations

import math

import numpy as np

from autosplit.planner.exact.downset_layers import DownsetLayers
from autosplit.planner.exact.dynamic_program import count_paths
from autosplit.planner.exact.layered_search import Arcs, Network, extend_labels, trace
from autosplit.planner.problem.problem import Array, Index

_BISECTIONS = 12


def best_paths(layers: DownsetLayers, least: float, k: int) -> list[list[int]]:
    """The cuts of the k best paths, fewer where there are no more; ``least``: the least period.

    Raises:
        OutOfTime: The deadline passed.
        TooManyStages: Too many splits are alike.
    """
    network = layers.network(_limit_for(layers, least, k))
    if network is None:
        return []
    paths: list[list[int]] = []
    period = least
    while len(paths) < k and period < math.inf:
        paths += _paths_of_period(network, period, k - len(paths))
        period = _next_period(network, period)
    return [layers.cuts(network.rows(path)) for path in paths]


def _limit_for(layers: DownsetLayers, least: float, k: int) -> float:
    """A limit within which k splits lie, not much above the smallest such."""
    low, high, step = least, least, 1e-3
    top = layers.scaled.limit
    # Paths are counted without required tensors, so with these every stage is taken.
    if layers.problem.required:
        return max(least, top)
    # First outwards until there are enough, then a bisection back.
    while high < top and count_paths(layers, high, k) < k:
        low, high, step = high, min(top, max(least, 1.0) * (1 + step)), step * 4
    if high > low:
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            if count_paths(layers, middle, k) >= k:
                high = middle
            else:
                low = middle
    return high


def _paths_of_period(network: Network, period: float, k: int) -> list[list[int]]:
    """The nodes of the best k paths of exactly this period, by latency, then bytes moved."""

    # A label's cost: whether some stage has the whole period (0 or 1), latency, bytes moved.
    def cost_of(cost: Array, arcs: Arcs, arc: Index) -> Array:
        load, received = arcs.weights[:2, arc]
        slowest = np.maximum(cost[0], load == period)
        return np.stack([slowest, cost[1] + load, cost[2] + received])

    def select(layer: int, node: Index, cost: Array) -> Index:
        slowest, latency, received = cost
        order = np.lexsort((received, latency, slowest, node))
        group = node[order] * 2 + slowest[order].astype(np.intp)
        # The k best of each node, with and without a stage of the whole period.
        rank = np.arange(len(order)) - np.searchsorted(group, group, side="left")
        best: Index = order[rank < k]
        return best

    layers = extend_labels(network.within(period), 3, cost_of, select)
    slowest, latency, received = layers[-1].cost
    ends = np.flatnonzero(slowest)
    ends = ends[np.lexsort((received[ends], latency[ends]))][:k]
    return [trace(layers, int(end)) for end in ends]


def _next_period(network: Network, period: float) -> float:
    """The least period above ``period`` of any path, infinite where there is none."""
    # Per node: whether a path within the period leads here, and the least period above it.
    within, above = np.ones(1, dtype=bool), np.full(1, math.inf)
    for nodes, arcs in zip(network.nodes[1:], network.arcs, strict=True):
        short = arcs.load <= period
        least = np.full(len(nodes), math.inf)
        np.minimum.at(least, arcs.head, np.maximum(arcs.load, above[arcs.tail]))
        exceeds = ~short & within[arcs.tail]
        np.minimum.at(least, arcs.head[exceeds], arcs.load[exceeds])
        reached = np.zeros(len(nodes), dtype=bool)
        reached[arcs.head[short & within[arcs.tail]]] = True
        within, above = reached, least
    return float(above.min(initial=math.inf))
