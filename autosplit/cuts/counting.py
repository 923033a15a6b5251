"""Counts the legal cuts of a graph without listing them.

The count of a graph is the product over its connected components. For a component with an op that
is comparable to all others, it is the count of the ops before that op plus that of those after it.
Other components are counted by dynamic programming: each op in a topological order is taken or left
out, and all choices that agree on the taken ops with later readers are one state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from autosplit.cuts.downsets import Ordered, closures, full, members
from autosplit.graph import bitset

STATES = 500_000  # states after which a count stops: about a second


@dataclass(frozen=True)
class Count:
    """A number of cuts; if not ``complete``, ``total`` is a proven lower bound of it."""

    total: int
    complete: bool


def count(graph: Ordered, limit: int = STATES) -> Count:
    """Count the downsets, including the empty and the full one; stop after ``limit`` states."""
    counter = _Counter(graph.predecessors, limit)
    total, complete = 1, True
    for component in counter.components(full(graph)):
        number = counter.number(component)
        if number is None:
            # A lower bound: the number of cuts along any one topological order.
            number, complete = component.bit_count() + 1, False
        total *= number
    return Count(total, complete)


class _Counter:
    """Counts the downsets of sets of ops, in at most ``limit`` states.

    ``direct``: for each op its producers that no other of its producers depends on; ``readers`` is
    the reverse. ``below`` and ``above``: all ops that an op depends on, and all that depend on it.
    """

    def __init__(self, predecessors: Sequence[int], limit: int) -> None:
        self.limit = limit
        self.direct: list[int] = []
        self.below = [ops & ~(1 << i) for i, ops in enumerate(closures(predecessors))]
        self.readers = [0] * len(predecessors)
        self.above = [0] * len(predecessors)
        for i, producers in enumerate(predecessors):
            indirect = reduce(or_, map(self.below.__getitem__, members(producers)), 0)
            self.direct.append(producers & ~indirect)
            for p in members(self.direct[i]):
                self.readers[p] |= 1 << i
        for i in reversed(range(len(predecessors))):
            for p in members(self.direct[i]):
                self.above[p] |= 1 << i | self.above[i]

    def components(self, ops: int) -> list[int]:
        """The connected components of a set of ops, as bitsets."""
        parts = []
        while ops:
            part = new = ops & -ops
            while new:
                reached = 0
                for i in members(new):
                    reached |= self.below[i] | self.above[i]
                new = reached & ops & ~part
                part |= new
            parts.append(part)
            ops &= ~part
        return parts

    def number(self, ops: int) -> int | None:
        """The number of downsets of a set of ops; None if the limit is exceeded."""
        total = 1
        for component in self.components(ops):
            waists = [i for i in members(component) if self._is_waist(i, component)]
            if waists:
                waist = waists[len(waists) // 2]
                before = self.number(component & self.below[waist])
                after = self.number(component & self.above[waist])
                number = None if before is None or after is None else before + after
            else:
                number = self._op_by_op(component)
            if number is None:
                return None
            total *= number
        return total

    def _is_waist(self, op: int, ops: int) -> bool:
        return ops & ~(self.below[op] | self.above[op]) == 1 << op

    def _op_by_op(self, ops: int) -> int | None:
        """Count by dynamic programming; a state is the set of taken ops that have later readers."""
        states, left = {0: 1}, ops
        for op in self._narrow_order(ops):
            left &= ~(1 << op)
            producers = self.direct[op] & ops
            is_open = bitset(i for i in (op, *members(producers)) if self.readers[i] & left)
            after: dict[int, int] = {}
            for state, ways in states.items():
                open_before = state & ~(producers & ~is_open)
                after[open_before] = after.get(open_before, 0) + ways
                if not producers & ~state:
                    taken = open_before | 1 << op & is_open
                    after[taken] = after.get(taken, 0) + ways
            states = after
            self.limit -= len(states)
            if self.limit < 0:
                return None
        return states[0]

    def _narrow_order(self, ops: int) -> list[int]:
        """A topological order in which few ops at a time have later readers, for few states.

        The next op is the one that adds fewest of these; ties go to the newest producer.
        """
        order: list[int] = []
        age = dict.fromkeys(members(ops), -1)
        left = ops

        def growth(op: int) -> tuple[int, int]:
            others, producers = left & ~(1 << op), list(members(self.direct[op] & ops))
            ended = sum(not self.readers[p] & others for p in producers)
            newest = max((age[p] for p in producers), default=-1)
            return bool(self.readers[op] & others) - ended, -newest

        while left:
            op = min((op for op in members(left) if not self.direct[op] & left), key=growth)
            age[op] = len(order)
            order.append(op)
            left &= ~(1 << op)
        return order
