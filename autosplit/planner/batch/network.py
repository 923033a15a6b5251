"""Stored stages between layers of cuts, and the paths through them.

Layer k holds the cuts that may lie before stage k, so K stages have layers 0 to K. An arc from a
cut of one layer to a cut of the next is a stage, weighted by its load.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from autosplit.planner.partition.problem import Array, Index


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
