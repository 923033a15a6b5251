"""The cuts that matter where the cuts are too many to hold them all: those near some splits, and those along a few orders.

A split that is best for costs not far from the known ones has cuts not far from those of the best split: a few ops more or
less on some branch. Where the costs are far off its cuts still lie near some order of the ops, at another place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate, chain

from autosplit.cuts import bitset, members
from autosplit.cuts.stages import Stages
from autosplit.planner import CostModel
from autosplit.planner.batch.neighbouring_cuts import Moves
from autosplit.planner.large.orders import backwards, breadth_first, depth_first, given

RADIUS = 2  # groups of ops that a cut may differ by from one of the splits
_SPLITS = 0.75  # share of the cuts that are chosen for the splits at most


class Near:
    """Chooses cuts of a graph."""

    def __init__(self, costs: CostModel, moves: Moves) -> None:
        self._costs, self._moves = costs, moves
        self._moved: dict[int, tuple[int, ...]] = {}
        self._spent: dict[int, float] = {}

    def cuts(self, splits: Sequence[Stages], most: int) -> tuple[int, ...]:
        """Up to ``most`` legal cuts, as bitsets of ops: those of ``splits``, and those within RADIUS moves of them.

        Then those along a few orders of the ops and one move away, by how far in time they lie from a cut of a split.
        """
        ends = dict.fromkeys(
            chain.from_iterable(accumulate(map(bitset, s[:-1]), int.__or__) for s in splits)
        )
        found, fresh = dict(ends), list(ends)
        for _ in range(RADIUS):
            before, start = fresh, len(found)
            for cut in before:
                if len(found) < _SPLITS * most:
                    found.update(dict.fromkeys(self._around(cut)))
            fresh = list(found)[start:]
        found.update(dict.fromkeys(self._along(list(ends), most)))
        return tuple(found)[:most]

    def _along(self, ends: Sequence[int], most: int) -> list[int]:
        """The cuts along the orders and those around them, the nearest in time to some cuts first."""
        middle = [self._time(cut) for cut in ends]

        def away(cut: int) -> float:
            time = self._time(cut)
            return min((abs(time - m) for m in middle), default=0.0)

        nearest = sorted(self._chains, key=away)[:most]
        return sorted(
            dict.fromkeys(chain(nearest, chain.from_iterable(map(self._around, nearest)))), key=away
        )

    @cached_property
    def _chains(self) -> tuple[int, ...]:
        """The cuts along a few topological orders."""
        contraction = self._costs.contraction
        orders = (
            order(contraction.predecessors)
            for order in (given, depth_first, breadth_first, backwards)
        )
        chains = (
            accumulate((contraction.groups[g] for g in order), int.__or__) for order in orders
        )
        return tuple(dict.fromkeys(chain.from_iterable(chains)))

    def _around(self, cut: int) -> tuple[int, ...]:
        if cut not in self._moved:
            self._moved[cut] = tuple(self._moves.of(cut))
        return self._moved[cut]

    def _time(self, cut: int) -> float:
        """The known time of the ops before a cut, on the first device."""
        if cut not in self._spent:
            times = self._costs.times[0]
            self._spent[cut] = math.fsum(t for i in members(cut) if (t := times[i]) < math.inf)
        return self._spent[cut]
