"""All stages within a limit as the edges of a layered network; a split is a path from the empty cut to the full one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autosplit.errors import Infeasible
from autosplit.planner.exact.downset_table import to_int, to_words
from autosplit.planner.exact.dynamic_program import Chain, Index
from autosplit.planner.exact.stage_loads import Side, loads
from autosplit.planner.problem.problem import Array, OutOfTime

MOST_EDGES = 2_000_000


class TooManyStages(Infeasible):
    """More stages lie within the limit than are worth holding."""


@dataclass(frozen=True)
class Edges:
    """The stages at one level: from node ``tail`` of the level before to node ``head``, ordered by head."""

    tail: Index
    head: Index
    load: Array
    moved: Array
    memory: Array

    def keep(self, where: NDArray[np.bool_] | Index) -> Edges:
        """Only some of the stages."""
        return Edges(
            self.tail[where],
            self.head[where],
            self.load[where],
            self.moved[where],
            self.memory[where],
        )


@dataclass(frozen=True)
class Network:
    """``cuts``: per level the bitset of groups of each node; ``edges``: per stage; each lies on some full path."""

    cuts: list[list[int]]
    edges: list[Edges]


def build(chain: Chain, limit: float) -> Network | None:
    """The network of all stages within ``limit`` (units), None where no path leads through it.

    Raises TooManyStages past a fixed number of edges, OutOfTime at the deadline.
    """
    levels = chain.windows.levels(limit)
    rows, flags = levels[0], np.zeros(len(levels[0]), dtype=np.int64)
    nodes, edges, total = [rows], [], 0
    for k in range(1, chain.problem.stages + 1):
        found = _stages(chain, rows, levels[k], k, limit, MOST_EDGES - total)
        total += len(found.tail)
        reached = flags[found.tail] | chain.separated(levels[k])[found.head]
        pairs = np.stack([levels[k][found.head], reached], axis=1)
        distinct, head = np.unique(pairs, axis=0, return_inverse=True)
        rows, flags = distinct[:, 0].astype(np.intp), distinct[:, 1]
        edges.append(Edges(found.tail, head.reshape(-1), found.load, found.moved, found.memory))
        nodes.append(rows)
    done = flags == (1 << len(chain.problem.required)) - 1
    if not done.any():
        return None
    return Network(
        [[to_int(w) for w in chain.words[level]] for level in nodes], _pruned(edges, nodes, done)
    )


def _stages(chain: Chain, tails: Index, heads: Index, k: int, limit: float, most: int) -> Edges:
    left, right = (Side(chain.scaled, chain.words[rows], k - 1) for rows in (tails, heads))
    parts = [
        (
            np.zeros(0, dtype=np.intp),
            np.zeros(0, dtype=np.intp),
            np.zeros(0),
            np.zeros(0),
            np.zeros(0),
        )
    ]
    for block in loads(chain.scaled, k - 1, left, right, limit):
        if chain.deadline is not None and chain.deadline():
            raise OutOfTime
        i, j = np.nonzero(block.load <= limit)
        most -= len(i)
        if most < 0:
            raise TooManyStages(
                f"more than {MOST_EDGES} stages lie within the limit; ask for fewer splits"
            )
        moved, memory = block.bytes_moved(i, j), block.memory()[i, j]
        parts.append((block.left.start + i, block.right.start + j, block.load[i, j], moved, memory))
    if chain.problem.allow_empty:
        i = _unmoved(chain, tails, heads)
        nothing = np.zeros(len(i))
        parts.append((i, np.searchsorted(heads, tails[i]), nothing, nothing, nothing))
    return Edges(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _unmoved(chain: Chain, tails: Index, heads: Index) -> Index:
    """The places among ``tails`` of the cuts after which a stage may be empty."""
    stays = np.isin(tails, heads)
    if chain.problem.empty_last:
        size = chain.problem.size
        stays &= (chain.words[tails] == to_words([(1 << size) - 1], size)).all(axis=1)
    return np.flatnonzero(stays)


def _pruned(edges: list[Edges], nodes: list[Index], done: NDArray[np.bool_]) -> list[Edges]:
    """Only the edges from which the full cut is reached, ordered by head."""
    kept = []
    for found, before in zip(reversed(edges), reversed(nodes[:-1]), strict=True):
        useful = found.keep(done[found.head])
        kept.append(useful.keep(np.argsort(useful.head, kind="stable")))
        done = np.zeros(len(before), dtype=bool)
        done[useful.tail] = True
    return kept[::-1]


def count_paths(chain: Chain, limit: float, cap: float) -> float:
    """The number of splits whose loads are all within ``limit``, or ``cap`` where there are more.

    Required tensors are left out of the count. Raises OutOfTime.
    """
    levels = chain.windows.levels(limit)
    ways = np.ones(len(levels[0]))
    for k in range(1, chain.problem.stages + 1):
        left, right = (Side(chain.scaled, chain.words[levels[n]], k - 1) for n in (k - 1, k))
        after = np.zeros(len(levels[k]))
        for block in loads(chain.scaled, k - 1, left, right, limit):
            if chain.deadline is not None and chain.deadline():
                raise OutOfTime
            after[block.right] += ways[block.left] @ (block.load <= limit)
        if chain.problem.allow_empty:
            same = _unmoved(chain, levels[k - 1], levels[k])
            after[np.searchsorted(levels[k], levels[k - 1][same])] += ways[same]
        ways = np.minimum(after, cap)
    return float(ways.sum())
