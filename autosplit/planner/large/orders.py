"""Topological orders of the groups; the cuts along one order are a chain, where the best split is easy to find."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from autosplit.cuts import members, successors, topological

Order = list[int]


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
