"""Topological orders of ops or groups; the cuts along one order are a chain of nested downsets.

``predecessors`` is for each node the bitset of the nodes it reads from.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from random import Random

from autosplit.cuts.downsets import members


def topological(predecessors: Sequence[int], rank: Callable[[int, int], float]) -> list[int]:
    """The order that always takes the ready node of least ``rank(node, step when it got ready)``.

    Kahn's algorithm (1962) with a heap. Nodes on a cycle never get ready and are left out.
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
    """The direct readers of each node."""
    readers: list[list[int]] = [[] for _ in predecessors]
    for i, producers in enumerate(predecessors):
        for p in members(producers):
            readers[p].append(i)
    return readers


def by_index(predecessors: Sequence[int]) -> list[int]:
    """The order of the indices."""
    return list(range(len(predecessors)))


def depth_first(predecessors: Sequence[int]) -> list[int]:
    """The newest ready node first: branches one after the other."""
    return topological(predecessors, lambda node, step: -step)


def breadth_first(predecessors: Sequence[int]) -> list[int]:
    """The oldest ready node first: branches side by side."""
    return topological(predecessors, lambda node, step: step)


def backwards(predecessors: Sequence[int]) -> list[int]:
    """Depth first, backwards from the ops without readers: each producer as late as possible."""
    order: list[int] = []
    done = 0
    readers = successors(predecessors)
    for sink in (i for i in range(len(predecessors)) if not readers[i]):
        # A stack, because long chains would exceed the recursion limit.
        stack = [sink]
        while stack:
            i = stack[-1]
            missing = predecessors[i] & ~done
            # An op with several readers is pushed by each of them.
            if done >> i & 1:
                stack.pop()
            elif missing:
                stack.append(next(members(missing)))
            else:
                stack.pop()
                done |= 1 << i
                order.append(i)
    return order


def random_order(predecessors: Sequence[int], random: Random) -> list[int]:
    """Depth first with random choices: branches mostly one after the other, in random order."""
    noise = [random.random() for _ in predecessors]
    # Without weight the order is depth first; with much weight the noise decides.
    weight = random.choice((0.0, 1.0, 4.0))
    return topological(predecessors, lambda node, step: weight * noise[node] - step)


PLAIN_ORDERS = (by_index, depth_first, breadth_first, backwards)
