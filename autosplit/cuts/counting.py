"""How many legal cuts and splits there are, by counting and not by listing.

A split into K stages, empty ones allowed, is an order-preserving map of the ops to 0..K-1; the number of those maps is
the order polynomial of the graph (Stanley, Enumerative Combinatorics 1, section 3.12), and with K = 2 the number of
downsets. It multiplies over connected components, and adds up over the stages of an op that is comparable to all
others; what is left is counted op by op: the ops are assigned in a topological order, and all assignments that agree
on the ops with readers still to come are counted together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import comb

from autosplit.cuts.downsets import Ordered, full, members

STATES = 500_000


@dataclass(frozen=True)
class Count:
    """A number of cuts or splits; where ``complete`` is false, ``total`` is a proven lower bound of it."""

    total: int
    complete: bool


def count(graph: Ordered, limit: int = STATES, deadline: Callable[[], bool] | None = None) -> Count:
    """The number of downsets, the empty and the full one included; stops after ``limit`` states of the count."""
    return count_maps(graph, 2, limit, deadline)


def count_splits(
    graph: Ordered, stages: int, limit: int = STATES, deadline: Callable[[], bool] | None = None
) -> Count:
    """The number of splits into ``stages`` stages of which none is empty; stops after ``limit`` states of the count.

    By inclusion and exclusion over the stages that stay empty. Where a count stops, every op order still gives
    C(n-1, K-1) splits.
    """
    n = len(graph.predecessors)
    counter = _Counter(graph.predecessors, limit, deadline)
    total = 0
    for k in range(min(stages, n), 0, -1) if stages <= n else ():
        found = counter.maps(full(graph), k)
        if found is None:
            return Count(comb(n - 1, stages - 1), False)
        total += (-1) ** (stages - k) * comb(stages, k) * found
    return Count(total, True)


def count_maps(
    graph: Ordered, stages: int, limit: int = STATES, deadline: Callable[[], bool] | None = None
) -> Count:
    """The number of splits into ``stages`` stages, empty ones allowed."""
    counter = _Counter(graph.predecessors, limit, deadline)
    total, complete = 1, True
    for component in counter.components(full(graph)):
        found = counter.maps(component, stages)
        complete &= found is not None
        # any one order of the ops gives this many splits of the component
        total *= comb(component.bit_count() + stages - 1, stages - 1) if found is None else found
    return Count(total, complete)


class _Counter:
    """Counts order-preserving maps of sets of ops, each set and number of stages once; ``limit`` states in all."""

    def __init__(
        self, predecessors: Sequence[int], limit: int, deadline: Callable[[], bool] | None
    ) -> None:
        self.direct, self.below = _reduced(predecessors)
        self.above = [0] * len(self.below)
        for i, producers in enumerate(self.below):
            for p in members(producers):
                self.above[p] |= 1 << i
        self.limit, self.deadline = limit, deadline
        self.known: dict[tuple[int, int], int | None] = {}

    def maps(self, ops: int, stages: int) -> int | None:
        """The number of maps of ``ops`` to ``stages`` stages, None past the limit or the deadline."""
        if (ops, stages) not in self.known:
            total: int | None = 1
            for component in self.components(ops):
                found = self._component(component, stages)
                total = None if found is None or total is None else total * found
            self.known[ops, stages] = total
        return self.known[ops, stages]

    def components(self, ops: int) -> list[int]:
        """The connected parts of some ops, as bitsets."""
        found = []
        while ops:
            part = new = ops & -ops
            while new:
                reached = 0
                for i in members(new):
                    reached |= self.below[i] | self.above[i]
                new = reached & ops & ~part
                part |= new
            found.append(part)
            ops &= ~part
        return found

    def _component(self, ops: int, stages: int) -> int | None:
        """An op that all others depend on or are needed by splits the count in two; otherwise op by op."""
        waists = [i for i in members(ops) if ops & ~(self.below[i] | self.above[i]) == 1 << i]
        if not waists:
            return self._assigned(list(members(ops)), stages)
        waist = waists[len(waists) // 2]
        total = 0
        for s in range(1, stages + 1):
            before = self.maps(ops & self.below[waist], s)
            after = self.maps(ops & self.above[waist], stages - s + 1)
            if before is None or after is None:
                return None
            total += before * after
        return total

    def _assigned(self, ops: Sequence[int], stages: int) -> int | None:
        """Op by op in a topological order; a state holds the stages of the ops with readers to come."""
        direct = {i: self.direct[i] & sum(1 << j for j in ops) for i in ops}
        frontier: list[int] = []
        states: dict[bytes, int] = {b"": 1}
        wanted = _readers(direct)
        for op in _narrow_order(direct):
            if (self.deadline is not None and self.deadline()) or self.limit < 0 or stages > 255:
                return None
            places = [frontier.index(p) for p in members(direct[op])]
            for p in members(direct[op]):
                wanted[p] -= 1
            frontier.append(op)
            kept = [n for n, f in enumerate(frontier) if wanted[f]]
            frontier = [frontier[n] for n in kept]
            states = _assign(states, places, kept, stages)
            self.limit -= len(states)
        return states[b""]


def _reduced(predecessors: Sequence[int]) -> tuple[list[int], list[int]]:
    """The transitive reduction (producers that no other producer depends on), and all ops each one depends on."""
    below: list[int] = []
    reduced = []
    for producers in predecessors:
        indirect = 0
        for p in members(producers):
            indirect |= below[p]
        reduced.append(producers & ~indirect)
        below.append(indirect | producers)
    return reduced, below


def _assign(
    states: dict[bytes, int], places: Sequence[int], kept: Sequence[int], stages: int
) -> dict[bytes, int]:
    """All states after one more op, which may lie on no earlier stage than its producers (at ``places``)."""
    after: dict[bytes, int] = {}
    single = [bytes((s,)) for s in range(stages)]
    last = kept[-1] if kept else -1
    for state, ways in states.items():
        lowest = max((state[n] for n in places), default=0)
        if last != len(state):  # nobody reads the op: its stages need not be told apart
            key = bytes([state[n] for n in kept])
            after[key] = after.get(key, 0) + ways * (stages - lowest)
            continue
        stem = bytes([state[n] for n in kept[:-1]])
        for s in range(lowest, stages):
            key = stem + single[s]
            after[key] = after.get(key, 0) + ways
    return after


def _readers(direct: Mapping[int, int]) -> dict[int, int]:
    wanted = dict.fromkeys(direct, 0)
    for producers in direct.values():
        for p in members(producers):
            wanted[p] += 1
    return wanted


def _narrow_order(direct: Mapping[int, int]) -> list[int]:
    """A topological order that keeps few ops with readers to come: the next op ends most of them, then the newest."""
    wanted = _readers(direct)
    done = 0
    order: list[int] = []
    age = dict.fromkeys(direct, -1)
    waiting = list(direct)
    while waiting:
        ready = [i for i in waiting if not direct[i] & ~done]

        def growth(i: int) -> tuple[int, int]:
            ended = sum(wanted[p] == 1 for p in members(direct[i]))
            newest = max((age[p] for p in members(direct[i])), default=-1)
            return (wanted[i] > 0) - ended, -newest

        op = min(ready, key=growth)
        for p in members(direct[op]):
            wanted[p] -= 1
        age[op] = len(order)
        order.append(op)
        done |= 1 << op
        waiting.remove(op)
    return order
