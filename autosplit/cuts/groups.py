"""Downsets near another that hold each group of ops in whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence

from autosplit.cuts.downsets import Ordered, closure, members


def with_whole_groups(graph: Ordered, downset: int, groups: Sequence[int]) -> int:
    """The smallest downset that holds another and no group in part."""
    while torn := _torn(downset, groups):
        for group in torn:
            downset = closure(graph, downset | group)
    return downset


def without_torn_groups(graph: Ordered, downset: int, groups: Sequence[int]) -> int:
    """The largest downset that another holds and that has no group in part."""
    while torn := _torn(downset, groups):
        for group in torn:
            downset &= ~group
        # Producers stand earlier, so an op that lost one is met after it.
        for op in members(downset):
            if graph.predecessors[op] & ~downset:
                downset &= ~(1 << op)
    return downset


def last_ops(graph: Ordered, downset: int) -> int:
    """The ops of a downset that no other op of it reads."""
    read = 0
    for op in members(downset):
        read |= graph.predecessors[op]
    return downset & ~read


def _torn(downset: int, groups: Sequence[int]) -> list[int]:
    return [group for group in groups if group & downset and group & ~downset]
