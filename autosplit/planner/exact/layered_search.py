"""The layered search: a split is a path from the empty cut to the full one.

Layer k holds the cuts that may lie before stage k, so K stages have layers 0 to K. An arc from a
cut of one layer to a cut of the next is a stage, weighted by its load. What a search minimises
differs:

- least period, least latency: a dynamic program over arcs that are made block by block and never
  stored, because they may be too many (``dynamic_program``, ``batch.many_costs``);
- k best and Pareto front: labels, partial paths of which several at one cut are worth extending
  (``extend_labels``), over the stored arcs of a ``Network``;
- best first: A* with the least costs to go as bounds (``batch.best_paths``);
- fewest cores within a period: the layers are numbers of cores, and a stage leads over as many as
  its replicas use (``placement.deployments``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from autosplit.planner.problem.problem import Array, Index


@dataclass(frozen=True)
class Arcs:
    """The stages between two layers, ordered by ``tail``: from its node to node ``head``.

    ``weights``: one row a quantity, the load first. ``tails``: the number of nodes before.
    """

    tail: Index
    head: Index
    weights: Array
    tails: int

    @property
    def load(self) -> Array:
        """The load of each stage."""
        load: Array = self.weights[0]
        return load

    @cached_property
    def starts(self) -> Index:
        """The place of the first arc of each tail, and the number of arcs."""
        return np.searchsorted(self.tail, np.arange(self.tails + 1))

    def keep(self, where: NDArray[np.bool_] | Index) -> Arcs:
        """Only some of the stages."""
        return Arcs(self.tail[where], self.head[where], self.weights[:, where], self.tails)

    def within(self, limit: float) -> Arcs:
        """Only the stages with a load within ``limit``."""
        return self.keep(np.flatnonzero(self.load <= limit))

    def least_of_tail(self, values: Array) -> Array:
        """The least value over the arcs of each tail, infinite for a tail without arcs."""
        least = np.full(self.tails, math.inf)
        used = np.flatnonzero(np.diff(self.starts))
        if len(used):
            least[used] = np.minimum.reduceat(values, self.starts[used])
        return least


def collect_arcs(blocks: Iterable[tuple[Index, Index, Array]], tails: int, rows: int) -> Arcs:
    """The arcs of some blocks of (tail, head, weights) with ``rows`` rows of weights."""
    none = np.zeros(0, dtype=np.intp)
    parts = [(none, none, np.zeros((rows, 0))), *blocks]
    tail, head, weights = (np.concatenate(part, axis=-1) for part in zip(*parts, strict=True))
    arcs = Arcs(tail, head, weights, tails)
    # The order decides which of two equal paths is listed first.
    return arcs.keep(np.argsort(tail, kind="stable")) if (np.diff(tail) < 0).any() else arcs


@dataclass(frozen=True)
class Network:
    """``nodes``: for each layer what its nodes stand for; ``arcs``: for each stage.

    A path begins at node 0 of the first layer and ends in the last layer.
    """

    nodes: Sequence[Index]
    arcs: Sequence[Arcs]

    def within(self, limit: float) -> Network:
        """Only the stages with a load within ``limit``."""
        return Network(self.nodes, [arcs.within(limit) for arcs in self.arcs])

    def rows(self, path: Sequence[int]) -> list[int]:
        """What the nodes of a path stand for, those of the first and last layer left out."""
        return [int(nodes[n]) for nodes, n in zip(self.nodes[1:-1], path, strict=True)]

    def count_paths(self) -> float:
        """The number of paths."""
        ways = np.ones(len(self.nodes[-1]))
        for arcs in reversed(self.arcs):
            ways = np.bincount(arcs.tail, ways[arcs.head], arcs.tails).astype(np.float64)
        return float(ways[:1].sum())

    def least_to_go(self, join: np.ufunc) -> list[Array]:
        """Per layer and node the least ``join`` of the loads from there to the end."""
        least = [np.zeros(len(self.nodes[-1]))]
        for arcs in reversed(self.arcs):
            least.append(arcs.least_of_tail(join(arcs.load, least[-1][arcs.head])))
        return least[::-1]


@dataclass(frozen=True)
class Labels:
    """Partial paths to the cuts of one layer.

    ``node``: per path the cut it leads to; ``parent``: its place in the layer before.
    """

    node: Index
    parent: Index


@dataclass(frozen=True)
class CostLabels(Labels):
    """Labels ordered by node; ``cost``: one row a criterion."""

    cost: Array


def extend_labels(
    network: Network,
    criteria: int,
    cost_of: Callable[[Array, Arcs, Index], Array],
    select: Callable[[int, Index, Array], Index],
) -> list[CostLabels]:
    """The labels of each layer, from one label of cost 0 in each of ``criteria`` at the start.

    ``cost_of(cost, arcs, arc)``: the cost of labels after each takes one of the ``arcs``.
    ``select(layer, node, cost)``: the labels that are worth extending, ordered by node.
    """
    start = np.zeros(1, dtype=np.intp)
    layers = [CostLabels(start, start, np.zeros((criteria, 1)))]
    for layer, arcs in enumerate(network.arcs, 1):
        before = layers[-1]
        # Every label is joined with every arc that begins at its node.
        first = np.searchsorted(before.node, arcs.tail, side="left")
        count = np.searchsorted(before.node, arcs.tail, side="right") - first
        arc = np.repeat(np.arange(len(arcs.tail)), count)
        number = np.arange(len(arc)) - np.repeat(np.cumsum(count) - count, count)
        label = np.repeat(first, count) + number
        node = arcs.head[arc]
        cost = cost_of(before.cost[:, label], arcs, arc)
        chosen = select(layer, node, cost)
        layers.append(CostLabels(node[chosen], label[chosen], cost[:, chosen]))
    return layers


def parts_by_node(labels: Index, node: Index) -> list[Index]:
    """Labels ordered by node as one part for each node; only labels of one node are comparable."""
    bounds = np.flatnonzero(np.diff(node[labels], prepend=-1, append=-1))
    return [labels[a:b] for a, b in pairwise(bounds)]


def trace(layers: Sequence[Labels], label: int) -> list[int]:
    """The nodes of the path that ends with a label, those of the first and last layer left out."""
    nodes = []
    for layer in reversed(layers[1:]):
        nodes.append(int(layer.node[label]))
        label = int(layer.parent[label])
    return nodes[:0:-1]
