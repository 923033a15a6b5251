"""How many legal cuts and splits there are, counted without listing them.

A split into K stages, empty ones allowed, is an order-preserving map of the ops to 0..K-1. The
number of those maps is the order polynomial of the graph (Stanley, Enumerative Combinatorics 1,
section 3.12), and with K = 2 the number of downsets. It multiplies over connected components, and
adds up over the stages of an op that is comparable to all others. What is left is counted op by
op: the ops are assigned in a topological order, and all assignments that agree on the ops with
readers still to come are counted together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import comb

from autosplit.cuts.downsets import Ordered, full, members

STATES = 500_000  # states of a count: about a second


@dataclass(frozen=True)
class Count:
    """A number of cuts or splits; if not ``complete``, ``total`` is a proven lower bound of it."""

    total: int
    complete: bool


def count(graph: Ordered, limit: int = STATES, deadline: Callable[[], bool] | None = None) -> Count:
    """The number of downsets, the empty and the full one included.

    All counts stop after ``limit`` states.
    """
    return count_maps(graph, 2, limit, deadline)


def count_splits(
    graph: Ordered, stages: int, limit: int = STATES, deadline: Callable[[], bool] | None = None
) -> Count:
    """The number of splits into ``stages`` stages of which none is empty."""
    n = len(graph.predecessors)
    if stages > n:
        return Count(0, True)
    counter = _Counter(graph.predecessors, limit, deadline)
    total = 0
    # Inclusion and exclusion over the stages that stay empty.
    for k in range(stages, 0, -1):
        maps = counter.maps(full(graph), k)
        if maps is None:
            # Every op order gives C(n-1, K-1) splits.
            return Count(comb(n - 1, stages - 1), False)
        total += (-1) ** (stages - k) * comb(stages, k) * maps
    return Count(total, True)


def count_maps(
    graph: Ordered, stages: int, limit: int = STATES, deadline: Callable[[], bool] | None = None
) -> Count:
    """The number of splits into ``stages`` stages, empty ones allowed."""
    counter = _Counter(graph.predecessors, limit, deadline)
    total, complete = 1, True
    for component in counter.components(full(graph)):
        maps = counter.maps(component, stages)
        if maps is None:
            # Any one order of the ops gives this many splits of the component.
            maps, complete = comb(component.bit_count() + stages - 1, stages - 1), False
        total *= maps
    return Count(total, complete)


class _Counter:
    """Counts order-preserving maps of sets of ops, each set and number of stages once."""

    def __init__(
        self, predecessors: Sequence[int], limit: int, deadline: Callable[[], bool] | None
    ) -> None:
        self.limit, self.deadline = limit, deadline
        self.known: dict[tuple[int, int], int | None] = {}
        # ``direct`` is the transitive reduction: producers that no other producer depends on.
        # ``below`` and ``above`` are all ops that each one depends on, or that depend on it.
        self.direct: list[int] = []
        self.below: list[int] = []
        self.above = [0] * len(predecessors)
        for i, producers in enumerate(predecessors):
            indirect = 0
            for p in members(producers):
                indirect |= self.below[p]
            self.direct.append(producers & ~indirect)
            self.below.append(indirect | producers)
            for p in members(self.below[i]):
                self.above[p] |= 1 << i

    def maps(self, ops: int, stages: int) -> int | None:
        """The number of maps of ``ops`` to ``stages`` stages, None past the limit."""
        if (ops, stages) not in self.known:
            total: int | None = 1
            for component in self.components(ops):
                maps = self._component(component, stages)
                total = None if maps is None or total is None else total * maps
            self.known[ops, stages] = total
        return self.known[ops, stages]

    def components(self, ops: int) -> list[int]:
        """The connected parts of some ops, as bitsets."""
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

    def _component(self, ops: int, stages: int) -> int | None:
        """An op comparable to all others splits the count in two; otherwise it goes op by op."""
        waists = [i for i in members(ops) if ops & ~(self.below[i] | self.above[i]) == 1 << i]
        if not waists:
            return self._assign_all(ops, stages)
        waist = waists[len(waists) // 2]
        total = 0
        # The waist is on stage s - 1: what lies below it has s stages, what lies above the rest.
        for s in range(1, stages + 1):
            before = self.maps(ops & self.below[waist], s)
            after = self.maps(ops & self.above[waist], stages - s + 1)
            if before is None or after is None:
                return None
            total += before * after
        return total

    def _assign_all(self, ops: int, stages: int) -> int | None:
        """Op by op in a topological order; a state has the stages of ops with readers to come."""
        direct = {i: self.direct[i] & ops for i in members(ops)}
        frontier: list[int] = []
        states: dict[bytes, int] = {b"": 1}
        readers = _reader_counts(direct)
        for op in _narrow_order(direct):
            # A stage is a byte of the state.
            if (self.deadline is not None and self.deadline()) or self.limit < 0 or stages > 255:
                return None
            places = [frontier.index(p) for p in members(direct[op])]
            for p in members(direct[op]):
                readers[p] -= 1
            frontier.append(op)
            open_places = [n for n, f in enumerate(frontier) if readers[f]]
            frontier = [frontier[n] for n in open_places]
            states = _assign(states, places, open_places, stages)
            self.limit -= len(states)
        return states[b""]


def _assign(
    states: dict[bytes, int], places: Sequence[int], open_places: Sequence[int], stages: int
) -> dict[bytes, int]:
    """All states after one more op, on no earlier stage than its producers at ``places``.

    Of the ops of a state and the new one, only those at ``open_places`` have readers to come.
    """
    after: dict[bytes, int] = {}
    single = [bytes((s,)) for s in range(stages)]
    last = open_places[-1] if open_places else -1
    for state, ways in states.items():
        lowest = max((state[n] for n in places), default=0)
        if last != len(state):  # nobody reads the op: its stages need not be distinguished
            key = bytes([state[n] for n in open_places])
            after[key] = after.get(key, 0) + ways * (stages - lowest)
            continue
        stem = bytes([state[n] for n in open_places[:-1]])
        for s in range(lowest, stages):
            key = stem + single[s]
            after[key] = after.get(key, 0) + ways
    return after


def _reader_counts(direct: Mapping[int, int]) -> dict[int, int]:
    readers = dict.fromkeys(direct, 0)
    for producers in direct.values():
        for p in members(producers):
            readers[p] += 1
    return readers


def _narrow_order(direct: Mapping[int, int]) -> list[int]:
    """A topological order with few ops that have readers to come, so that there are few states.

    The next op is the one that is the last reader of most, then the one of the newest producer.
    """
    readers = _reader_counts(direct)
    order: list[int] = []
    age = dict.fromkeys(direct, -1)
    waiting, done = list(direct), 0
    while waiting:

        def growth(i: int) -> tuple[int, int]:
            ended = sum(readers[p] == 1 for p in members(direct[i]))
            newest = max((age[p] for p in members(direct[i])), default=-1)
            return (readers[i] > 0) - ended, -newest

        op = min((i for i in waiting if not direct[i] & ~done), key=growth)
        for p in members(direct[op]):
            readers[p] -= 1
        age[op] = len(order)
        order.append(op)
        done |= 1 << op
        waiting.remove(op)
    return order
