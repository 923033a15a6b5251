"""The cuts one move away from a cut: one group of ops, which no cut may part, more or less before it."""

from __future__ import annotations

from collections.abc import Iterator

from autosplit.cuts import Contraction, bitset, successors


class Moves:
    """Moves of the cuts of a graph."""

    def __init__(self, contraction: Contraction) -> None:
        self._contraction = contraction
        self._readers = tuple(
            map(bitset, successors(contraction.predecessors))
        )  # groups that read from a group

    def of(self, cut: int) -> Iterator[int]:
        """The legal cuts with one group more or less than ``cut``, all as bitsets of ops."""
        groups, before = self._contraction.groups, self._contraction.predecessors
        inside = bitset(g for g, ops in enumerate(groups) if not ops & ~cut)
        for g, ops in enumerate(groups):
            if not (self._readers[g] & inside if ops & cut else before[g] & ~inside):
                yield cut ^ ops
