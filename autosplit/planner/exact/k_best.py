"""The k best splits, in order of period, latency and bytes moved.

A path that is best up to some cut need not be so to the end, because the period is a maximum. So the periods are taken
one by one, ascending: among the paths of exactly that period latency and bytes add up, and the best k to each node are
enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autosplit.planner.exact.dynamic_program import Chain, Index
from autosplit.planner.exact.layered_network import Edges, Network, build, count_paths
from autosplit.planner.problem.problem import Array

_ROUNDS = 12


def best_paths(chain: Chain, least: float, k: int) -> list[list[int]]:
    """The k best chains of cuts (fewer where there are no more), given the least period in units.

    Raises OutOfTime at the deadline and TooManyStages where too many splits are alike.
    """
    network = build(chain, _enough(chain, least, k))
    found: list[list[int]] = []
    period = least if network is not None else math.inf
    while network is not None and len(found) < k and period < math.inf:
        found += _paths(network, period, k - len(found))
        period = _next_period(network, period)
    return found


def _enough(chain: Chain, least: float, k: int) -> float:
    """A limit within which k splits lie, not much above the smallest such."""
    low, high, step = least, least, 1e-3
    top = _everything(chain)
    required = chain.problem.required
    while high < top and (required or count_paths(chain, high, k) < k):
        low, high, step = high, min(top, max(least, 1.0) * (1 + step)), step * 4
    for _ in range(_ROUNDS if high > low and not required else 0):
        middle = (low + high) / 2
        low, high = (low, middle) if count_paths(chain, middle, k) >= k else (middle, high)
    return high


def _everything(chain: Chain) -> float:
    """A limit that no finite load exceeds."""
    return chain.scaled.limit


@dataclass(frozen=True)
class _Labels:
    """Paths to the nodes of a level: ``node``, ``marked`` (some stage has the whole period), costs and where they came
    from.
    """

    node: Index
    marked: NDArray[np.bool_]
    latency: Array
    moved: Array
    parent: Index


def _paths(network: Network, period: float, k: int) -> list[list[int]]:
    """The best k chains of exactly this period, by latency, then bytes moved."""
    zero = np.zeros(1)
    layers = [
        _Labels(
            np.zeros(1, dtype=np.intp),
            np.zeros(1, dtype=bool),
            zero,
            zero,
            np.zeros(1, dtype=np.intp),
        )
    ]
    for edges in network.edges:
        layers.append(_extend(layers[-1], edges.keep(edges.load <= period), period, k))
    last = layers[-1]
    ends = np.flatnonzero(last.marked)
    ends = ends[np.lexsort((last.moved[ends], last.latency[ends]))][:k]
    return [_trace(network, layers, int(end)) for end in ends]


def _extend(before: _Labels, edges: Edges, period: float, k: int) -> _Labels:
    """The best k labels, with and without the mark, of each node one level on; labels are ordered by node."""
    first = np.searchsorted(before.node, edges.tail, side="left")
    count = np.searchsorted(before.node, edges.tail, side="right") - first
    edge = np.repeat(np.arange(len(edges.tail)), count)
    label = (
        np.arange(len(edge)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
    )
    node = edges.head[edge]
    marked = before.marked[label] | (edges.load[edge] == period)
    latency = before.latency[label] + edges.load[edge]
    moved = before.moved[label] + edges.moved[edge]
    order = np.lexsort((moved, latency, marked, node))
    place = node[order] * 2 + marked[order]
    rank = np.arange(len(order)) - np.searchsorted(place, place, side="left")
    kept = order[rank < k]
    return _Labels(node[kept], marked[kept], latency[kept], moved[kept], label[kept])


def _next_period(network: Network, period: float) -> float:
    """The least period above ``period`` of any path, infinite where there is none."""
    plain = np.zeros(1, dtype=bool), np.full(1, math.inf)
    within, above = (
        ~plain[0],
        plain[1],
    )  # whether a path within the period leads here; the least period above it
    for edges in network.edges:
        size = int(edges.head.max()) + 1 if len(edges.head) else 0
        small = edges.load <= period
        best = np.full(size, math.inf)
        np.minimum.at(best, edges.head, np.maximum(edges.load, above[edges.tail]))
        fresh = ~small & within[edges.tail]
        np.minimum.at(best, edges.head[fresh], edges.load[fresh])
        reached = np.zeros(size, dtype=bool)
        reached[edges.head[small & within[edges.tail]]] = True
        within, above = reached, best
    return float(above.min(initial=math.inf))


def _trace(network: Network, layers: list[_Labels], end: int) -> list[int]:
    cuts = []
    for level in range(len(layers) - 1, 0, -1):
        cuts.append(network.cuts[level][layers[level].node[end]])
        end = int(layers[level].parent[end])
    return cuts[:0:-1]
