"""Contraction of ops that must stay on one stage into groups; groups on a cycle are merged.

A stage between two nested downsets is convex, so it holds all groups of a cycle or none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from autosplit.cuts.downsets import members
from autosplit.graph import bitset
from autosplit.lazy import cached_property


@dataclass(frozen=True)
class Contraction:
    """Groups of ops in a topological order.

    ``groups`` are bitsets of ops, ``predecessors`` bitsets of groups.
    """

    groups: tuple[int, ...]
    predecessors: tuple[int, ...]

    @cached_property
    def group_of(self) -> tuple[int, ...]:
        """For each op the index of its group."""
        group_of = {i: g for g, ops in enumerate(self.groups) for i in members(ops)}
        return tuple(group_of[i] for i in range(len(group_of)))

    def expand(self, downset: int) -> int:
        """The bitset of ops for a bitset of groups."""
        ops = 0
        for g in members(downset):
            ops |= self.groups[g]
        return ops


def contract(predecessors: Sequence[int], keep_together: Iterable[int] = ()) -> Contraction:
    """Contract each bitset of ``keep_together`` and every cycle that arises.

    The bitsets may overlap. Ops may stand in any order and ``predecessors`` may have cycles.
    """
    size = len(predecessors)
    # A group of one op needs no contraction.
    linked = [list(members(ops)) for ops in keep_together if ops.bit_count() > 1]
    if not linked and all(not producers >> i for i, producers in enumerate(predecessors)):
        # The common case, nothing to contract and already in order, does not load networkx.
        return Contraction(tuple(1 << i for i in range(size)), tuple(predecessors))
    import networkx as nx

    graph = nx.DiGraph()
    graph.add_nodes_from(range(size))
    for i, producers in enumerate(predecessors):
        graph.add_edges_from((p, i) for p in members(producers))
    # A ring through ops that stay together makes them strongly connected.
    for ops in linked:
        graph.add_edges_from(pairwise([*ops, ops[0]]))
    components: Any = nx.condensation(graph)
    ops_of = {node: bitset(ops) for node, ops in components.nodes(data="members")}
    # Among the groups that are ready, the one with the earliest op comes first.
    first_op = {node: next(members(ops)) for node, ops in ops_of.items()}
    order = list(nx.lexicographical_topological_sort(components, key=first_op.__getitem__))
    place = {node: g for g, node in enumerate(order)}
    return Contraction(
        tuple(ops_of[node] for node in order),
        tuple(bitset(map(place.__getitem__, components.predecessors(node))) for node in order),
    )
