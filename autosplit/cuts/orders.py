"""Topological orders by rank of what is ready (Kahn 1962)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from autosplit.cuts.downsets import members


def topological(predecessors: Sequence[int], rank: Callable[[int, int], float]) -> list[int]:
    """The topological order that takes, of the ops that are ready, the one of least ``rank(op, when it got ready)``.

    ``predecessors``: for each op the bitset of ops it reads from. Ops on a cycle never get ready and are left out.
    """
    readers = successors(predecessors)
    missing = [p.bit_count() for p in predecessors]
    ready = [(rank(i, 0), i) for i, m in enumerate(missing) if not m]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, i = heapq.heappop(ready)
        order.append(i)
        for r in readers[i]:
            missing[r] -= 1
            if not missing[r]:
                heapq.heappush(ready, (rank(r, len(order)), r))
    return order


def successors(predecessors: Sequence[int]) -> list[list[int]]:
    """The direct readers of each op."""
    readers: list[list[int]] = [[] for _ in predecessors]
    for i, producers in enumerate(predecessors):
        for p in members(producers):
            readers[p].append(i)
    return readers
