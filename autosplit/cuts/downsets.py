"""Legal cuts: the downsets of the graph, as bitsets of op indices.

Bit i is set where op i lies before the cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from autosplit.errors import Infeasible
from autosplit.graph import bitset


class Ordered(Protocol):
    """A graph of ops in topological order, given by the producers of each op."""

    @property
    def predecessors(self) -> Sequence[int]:
        """For each op the bitset of its direct producers, which have lower indices than the op."""
        ...


class TooManyDownsets(Infeasible):
    """The graph has more downsets than the caller allows."""


def members(ops: int) -> Iterator[int]:
    """The op indices of a bitset, ascending."""
    while ops:
        low = ops & -ops
        yield low.bit_length() - 1
        ops ^= low


def full(graph: Ordered) -> int:
    """The downset that holds every op."""
    return (1 << len(graph.predecessors)) - 1


def is_downset(graph: Ordered, ops: int) -> bool:
    """Whether ``ops`` holds all producers of each of its ops."""
    return 0 <= ops <= full(graph) and all(not graph.predecessors[i] & ~ops for i in members(ops))


def closure(graph: Ordered, ops: int | Iterable[int]) -> int:
    """The smallest downset that holds ``ops`` (a bitset, or op indices)."""
    downset = ops if isinstance(ops, int) else bitset(ops)
    remaining = downset
    # Producers have lower indices, so going back from the last op visits each op once.
    while remaining:
        last = remaining.bit_length() - 1
        downset |= graph.predecessors[last]
        remaining = (remaining ^ 1 << last) | graph.predecessors[last]
    return downset


def closures(predecessors: Sequence[int]) -> list[int]:
    """For each op the smallest downset that holds it."""
    below: list[int] = []
    for i, producers in enumerate(predecessors):
        below.append(1 << i)
        for p in members(producers):
            below[i] |= below[p]
    return below


def downsets(graph: Ordered, limit: int | None = None) -> tuple[int, ...]:
    """All downsets, the empty and the full one included, by ascending number of ops.

    Each op in turn is added to the downsets that hold its producers.

    Raises:
        TooManyDownsets: There are more than ``limit``.
    """
    rows = [0]
    # Place in ``rows`` of the first downset with each op: the bases for its readers start there.
    first = [0] * len(graph.predecessors)
    for i, producers in enumerate(graph.predecessors):
        start = max((first[p] for p in members(producers)), default=0)
        first[i] = len(rows)
        rows += [d | 1 << i for d in rows[start:] if not producers & ~d]
        if limit is not None and len(rows) > limit:
            raise TooManyDownsets(
                f"the graph has more than {limit} legal cuts; raise the limit or count them instead"
            )
    return tuple(sorted(rows, key=int.bit_count))
