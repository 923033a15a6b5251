"""Ops that must stay on one stage, contracted to one group; a cycle between groups makes all of them one.

A stage between two nested downsets is convex, so groups on a cycle can never be apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autosplit.cuts.downsets import members
from autosplit.cuts.orders import topological


@dataclass(frozen=True)
class Contraction:
    """Groups of ops in a topological order: ``groups`` as bitsets of ops, ``predecessors`` as bitsets of groups."""

    groups: tuple[int, ...]
    predecessors: tuple[int, ...]

    def group_of(self) -> tuple[int, ...]:
        """For each op the index of its group."""
        where = {i: g for g, ops in enumerate(self.groups) for i in members(ops)}
        return tuple(where[i] for i in range(len(where)))

    def expand(self, downset: int) -> int:
        """The bitset of ops for a bitset of groups."""
        ops = 0
        for g in members(downset):
            ops |= self.groups[g]
        return ops


def contract(predecessors: Sequence[int], keep_together: Iterable[int] = ()) -> Contraction:
    """Contract each bitset of ``keep_together`` (they may overlap) and every cycle that arises; ops in any order.

    ``predecessors`` may hold cycles too: ops on one become one group.
    """
    label = _joined(len(predecessors), keep_together)
    before = dict.fromkeys(label, 0)  # group label -> bitset of labels it reads from
    for i, producers in enumerate(predecessors):
        for p in members(producers):
            if label[p] != label[i]:
                before[label[i]] |= 1 << label[p]
    component = _components(before)
    ops: dict[int, int] = {}  # in the order of the earliest op
    for i, g in enumerate(label):
        c = component[g]
        ops[c] = ops.get(c, 0) | 1 << i
    index = {c: n for n, c in enumerate(ops)}
    reads = [0] * len(ops)
    for g, producers in before.items():
        n = index[component[g]]
        for p in members(producers):
            reads[n] |= 1 << index[component[p]]
        reads[n] &= ~(1 << n)
    groups = tuple(ops.values())
    order = topological(reads, lambda n, when: n)
    place = {n: at for at, n in enumerate(order)}
    return Contraction(
        tuple(groups[n] for n in order),
        tuple(sum(1 << place[p] for p in members(reads[n])) for n in order),
    )


def _joined(count: int, keep_together: Iterable[int]) -> list[int]:
    parent = list(range(count))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for group in keep_together:
        first, *rest = members(group) if group else (0,)
        for i in rest:
            parent[root(i)] = root(first)
    return [root(i) for i in range(count)]


def _components(before: dict[int, int]) -> dict[int, int]:
    """Strongly connected components (Tarjan 1972, without recursion): node -> a representative."""
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    component: dict[int, int] = {}
    stack: list[int] = []
    for start in before:
        if start in number:
            continue
        number[start] = low[start] = len(number)
        stack.append(start)
        work = [(start, members(before[start]))]
        while work:
            node, rest = work[-1]
            for p in rest:
                if p not in number:
                    number[p] = low[p] = len(number)
                    stack.append(p)
                    work.append((p, members(before[p])))
                    break
                if p not in component:
                    low[node] = min(low[node], number[p])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    while True:
                        p = stack.pop()
                        component[p] = node
                        if p == node:
                            break
    return component
