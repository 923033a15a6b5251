"""How many legal cuts and splits there are, by counting and not by listing.

A split into K stages, empty ones allowed, is an order-preserving map of the ops to 0..K-1; the number of those maps is
the order polynomial of the graph (Stanley, Enumerative Combinatorics 1, section 3.12), and with K = 2 the number of
downsets. It multiplies over connected components. Within one the ops are assigned in a topological order, and all
assignments that agree on the ops with readers still to come are counted together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb

from autosplit.cuts.downsets import Ordered, members

STATES = 2_000_000


@dataclass(frozen=True)
class Count:
    """A number of cuts or splits; where ``complete`` is false, ``total`` is a proven lower bound of it."""

    total: int
    complete: bool


def count(graph: Ordered, limit: int = STATES, deadline: Callable[[], bool] | None = None) -> Count:
    """The number of downsets, the empty and the full one included; stops after ``limit`` states of the count."""
    return count_maps(graph, 2, limit, deadline)


def count_splits(graph: Ordered, stages: int, limit: int = STATES, deadline: Callable[[], bool] | None = None) -> Count:
    """The number of splits into ``stages`` stages of which none is empty; stops after ``limit`` states of each count.

    By inclusion and exclusion over the stages that stay empty. Where a count stops, every op order still gives
    C(n-1, K-1) splits.
    """
    counts = {k: count_maps(graph, k, limit, deadline) for k in range(stages, 0, -1)}
    n = len(graph.predecessors)
    if not all(c.complete for c in counts.values()):
        return Count(comb(n - 1, stages - 1) if n else 0, False)
    return Count(sum((-1) ** (stages - k) * comb(stages, k) * c.total for k, c in counts.items()), True)


def count_maps(graph: Ordered, stages: int, limit: int = STATES, deadline: Callable[[], bool] | None = None) -> Count:
    """The number of splits into ``stages`` stages, empty ones allowed."""
    total, complete = 1, True
    direct = _reduced(graph.predecessors)
    for component in _components(direct):
        found, left = _count_component(direct, component, stages, limit, deadline)
        limit -= left
        complete &= found is not None
        # any one order of the ops gives this many splits of the component
        total *= comb(len(component) + stages - 1, stages - 1) if found is None else found
    return Count(total, complete)


def _reduced(predecessors: Sequence[int]) -> list[int]:
    """The transitive reduction: only those producers that no other producer depends on."""
    below: list[int] = []
    reduced = []
    for producers in predecessors:
        indirect = 0
        for p in members(producers):
            indirect |= below[p]
        reduced.append(producers & ~indirect)
        below.append(indirect | producers)
    return reduced


def _components(predecessors: Sequence[int]) -> list[list[int]]:
    """Op indices of each connected component, ascending."""
    parent = list(range(len(predecessors)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for i, producers in enumerate(predecessors):
        for p in members(producers):
            parent[root(p)] = root(i)
    found: dict[int, list[int]] = {}
    for i in range(len(predecessors)):
        found.setdefault(root(i), []).append(i)
    return list(found.values())


def _count_component(
    predecessors: Sequence[int], ops: Sequence[int], stages: int, limit: int, deadline: Callable[[], bool] | None
) -> tuple[int | None, int]:
    """The number of maps of one component (None past the limit) and the states it took."""
    frontier: list[int] = []  # ops with readers to come; a state holds their stages, in this order
    states: dict[bytes, int] = {b"": 1}
    used = 0
    wanted = _readers(predecessors, ops)
    for op in _narrow_order(predecessors, ops):
        if (deadline is not None and deadline()) or used > limit or stages > 255:
            return None, used
        places = [frontier.index(p) for p in members(predecessors[op])]
        for p in members(predecessors[op]):
            wanted[p] -= 1
        frontier.append(op)
        kept = [n for n, f in enumerate(frontier) if wanted[f]]
        frontier = [frontier[n] for n in kept]
        states = _assign(states, places, kept, stages)
        used += len(states)
    return states[b""], used


def _assign(states: dict[bytes, int], places: Sequence[int], kept: Sequence[int], stages: int) -> dict[bytes, int]:
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


def _readers(predecessors: Sequence[int], ops: Sequence[int]) -> dict[int, int]:
    wanted = dict.fromkeys(ops, 0)
    for i in ops:
        for p in members(predecessors[i]):
            wanted[p] += 1
    return wanted


def _narrow_order(predecessors: Sequence[int], ops: Sequence[int]) -> list[int]:
    """A topological order that keeps few ops with readers to come: the next op ends most of them, then the newest."""
    wanted = _readers(predecessors, ops)
    done = 0
    order: list[int] = []
    age = dict.fromkeys(ops, -1)
    waiting = list(ops)
    while waiting:
        ready = [i for i in waiting if not predecessors[i] & ~done]

        def growth(i: int) -> tuple[int, int]:
            ended = sum(wanted[p] == 1 for p in members(predecessors[i]))
            newest = max((age[p] for p in members(predecessors[i])), default=-1)
            return (wanted[i] > 0) - ended, -newest

        op = min(ready, key=growth)
        for p in members(predecessors[op]):
            wanted[p] -= 1
        age[op] = len(order)
        order.append(op)
        done |= 1 << op
        waiting.remove(op)
    return order
