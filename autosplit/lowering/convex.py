"""Convex sets of fused ops: sets that can be taken out of a graph and run by themselves."""

from __future__ import annotations

from collections.abc import Iterable

from autosplit.cuts import bitset, closure, members
from autosplit.errors import SplitError
from autosplit.graph import FusedGraph


def between(graph: FusedGraph, first: Iterable[int], last: Iterable[int]) -> tuple[int, ...]:
    """The ops on any path from an op of ``first`` to one of ``last``, both included, ascending.

    The set is convex. Raises SplitError for an op of ``first`` or ``last`` that is on no such path.
    """
    start, end = bitset(first), bitset(last)
    on_paths = _descendants(graph, start) & closure(graph, end)
    for i in members(start & ~on_paths):
        raise _no_path(f"op '{graph.ops[i].name}'", _described(graph, end))
    for i in members(end & ~on_paths):
        raise _no_path(_described(graph, start), f"op '{graph.ops[i].name}'")
    return tuple(members(on_paths))


def require_convex(graph: FusedGraph, ops: Iterable[int]) -> tuple[int, ...]:
    """Return the ops of a convex set in ascending order, each once.

    Raises SplitError if the set is empty, or if a path leaves it and enters it again.
    """
    inside = bitset(ops)
    if not inside:
        raise SplitError("no op is named; name at least one")
    outside = _descendants(graph, inside) & closure(graph, inside) & ~inside
    if outside:
        missing = ", ".join(f"'{graph.ops[i].name}'" for i in members(outside))
        raise SplitError(f"the ops are not convex: a path leaves them and returns; add {missing}")
    return tuple(members(inside))


def _descendants(graph: FusedGraph, ops: int) -> int:
    """``ops`` and every op that depends on them."""
    reached = ops
    for i, producers in enumerate(graph.predecessors):
        # Ops are in topological order, so one pass reaches every descendant.
        if producers & reached:
            reached |= 1 << i
    return reached


def _no_path(start: str, end: str) -> SplitError:
    return SplitError(f"no path leads from {start} to {end}; swap them or name others")


def _described(graph: FusedGraph, ops: int) -> str:
    names = [f"'{graph.ops[i].name}'" for i in members(ops)]
    return f"op {names[0]}" if len(names) == 1 else f"any of {', '.join(names)}"
