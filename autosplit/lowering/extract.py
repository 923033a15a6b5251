"""Convex sets of fused ops: what can be taken out of a graph and run by itself."""

from __future__ import annotations

from collections.abc import Iterable

from autosplit.cuts import bitset, closure, members
from autosplit.errors import SplitError
from autosplit.graph import FusedGraph


def between(graph: FusedGraph, first: Iterable[int], last: Iterable[int]) -> tuple[int, ...]:
    """The ops on any path from an op of ``first`` to one of ``last``, both included, ascending. It is convex.

    Raises SplitError where an op of either is on no such path.
    """
    start, end = bitset(first), bitset(last)
    found = _descendants(graph, start) & closure(graph, end)
    for i in members(start & ~found):
        raise SplitError(
            f"no path leads from op '{graph.ops[i].name}' to {_named(graph, end)}; swap them or name others"
        )
    for i in members(end & ~found):
        raise SplitError(
            f"no path leads from {_named(graph, start)} to op '{graph.ops[i].name}'; swap them or name others"
        )
    return tuple(members(found))


def require_convex(graph: FusedGraph, ops: Iterable[int]) -> tuple[int, ...]:
    """The ops, ascending, each once. Raises SplitError with a path that leaves the set and returns, or where it is empty."""
    held = bitset(ops)
    if not held:
        raise SplitError("no op is named; name at least one")
    outside = _descendants(graph, held) & closure(graph, held) & ~held
    if outside:
        path = _path(graph, held, next(members(outside)))
        left = ", ".join(f"'{graph.ops[i].name}'" for i in members(outside))
        raise SplitError(
            f"the ops are not convex: the path {' -> '.join(graph.ops[i].name for i in path)} leaves them and returns; "
            f"add {left}"
        )
    return tuple(members(held))


def _descendants(graph: FusedGraph, ops: int) -> int:
    """``ops`` and every op that reads, directly or not, what they make."""
    held = ops
    for i, producers in enumerate(graph.predecessors):  # readers stand later, so one pass is enough
        if producers & held:
            held |= 1 << i
    return held


def _path(graph: FusedGraph, held: int, through: int) -> list[int]:
    """A path from the set over the op ``through``, which is outside, back into it."""
    before, after = [through], [through]
    while not held >> before[-1] & 1:
        reads = graph.predecessors[before[-1]]
        before.append(max(i for i in members(reads) if _descendants(graph, held) >> i & 1))
    while not held >> after[-1] & 1:
        readers = graph.successors[after[-1]]
        after.append(min(i for i in members(readers) if closure(graph, held) >> i & 1))
    return [*reversed(before), *after[1:]]


def _named(graph: FusedGraph, ops: int) -> str:
    names = [f"'{graph.ops[i].name}'" for i in members(ops)]
    return f"op {names[0]}" if len(names) == 1 else f"any of {', '.join(names)}"
