"""Topological orders of the groups; the cuts along one order are a chain, where the best split is easy to find."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from random import Random

from autosplit.cuts import members

Order = list[int]


def topological(predecessors: Sequence[int], rank: Callable[[int, int], float]) -> Order:
    """The topological order that takes, of the groups that are ready, the one of least ``rank(group, when it got
    ready)``.
    """
    readers = successors(predecessors)
    missing = [p.bit_count() for p in predecessors]
    ready = [(rank(i, 0), i) for i, m in enumerate(missing) if not m]
    heapq.heapify(ready)
    order: Order = []
    while ready:
        _, i = heapq.heappop(ready)
        order.append(i)
        for r in readers[i]:
            missing[r] -= 1
            if not missing[r]:
                heapq.heappush(ready, (rank(r, len(order)), r))
    return order


def successors(predecessors: Sequence[int]) -> list[list[int]]:
    """The direct readers of each group."""
    readers: list[list[int]] = [[] for _ in predecessors]
    for i, producers in enumerate(predecessors):
        for p in members(producers):
            readers[p].append(i)
    return readers


def given(predecessors: Sequence[int]) -> Order:
    """The order of the indices."""
    return list(range(len(predecessors)))


def depth_first(predecessors: Sequence[int]) -> Order:
    """The newest ready group first: branches one after the other."""
    return topological(predecessors, lambda i, when: -when)


def breadth_first(predecessors: Sequence[int]) -> Order:
    """The oldest ready group first: branches side by side."""
    return topological(predecessors, lambda i, when: when)


def backwards(predecessors: Sequence[int]) -> Order:
    """Depth first from the last results back: producers as late as they can be."""
    order: Order = []
    done = 0
    readers = successors(predecessors)
    for sink in (i for i in range(len(predecessors)) if not readers[i]):
        work = [sink]
        while work:
            i = work[-1]
            wanted = predecessors[i] & ~done
            if done >> i & 1:
                work.pop()
            elif wanted:
                work.append(next(members(wanted)))
            else:
                work.pop()
                done |= 1 << i
                order.append(i)
    return order


def random_order(predecessors: Sequence[int], random: Random) -> Order:
    """Depth first with a random mind: branches mostly one after the other, in random order."""
    noise = [random.random() for _ in predecessors]
    depth = random.choice((0.0, 1.0, 4.0))
    return topological(predecessors, lambda i, when: depth * noise[i] - when)
