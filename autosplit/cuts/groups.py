"""The downsets nearest to a given one that hold each group of ops in whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence

from autosplit.cuts.downsets import Ordered, closure, members


def with_whole_groups(graph: Ordered, downset: int, groups: Sequence[int]) -> int:
    """The smallest downset that includes ``downset`` and holds no group in part."""
    while torn := _torn(downset, groups):
        for group in torn:
            downset = closure(graph, downset | group)
    return downset


def without_torn_groups(graph: Ordered, downset: int, groups: Sequence[int]) -> int:
    """The largest downset within ``downset`` that holds no group in part."""
    while torn := _torn(downset, groups):
        for group in torn:
            downset &= ~group
        # Producers have lower indices, so an op is visited after the producers that it may lose.
        for op in members(downset):
            if graph.predecessors[op] & ~downset:
                downset &= ~(1 << op)
    return downset


def last_ops(graph: Ordered, downset: int) -> int:
    """The ops of a downset whose outputs no other op of the downset reads."""
    read = 0
    for op in members(downset):
        read |= graph.predecessors[op]
    return downset & ~read


def _torn(downset: int, groups: Sequence[int]) -> list[int]:
    return [group for group in groups if group & downset and group & ~downset]
