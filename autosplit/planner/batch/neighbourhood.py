"""Cuts near given splits, for graphs with too many cuts to hold all of them.

A split that is best for costs not far from the known ones has cuts not far from those of the best
split: a few ops more or less on some branch. Where the costs are far off, its cuts still lie near
some order of the ops, at another place. So the neighbourhood holds both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate

from autosplit.cuts import bitset, full, members
from autosplit.cuts.orders import PLAIN_ORDERS, successors
from autosplit.cuts.stages import Stages, cuts_between
from autosplit.planner.problem.cost_model import CostModel

RADIUS = 2  # groups of ops that a cut may differ by from one of the splits
_SPLIT_SHARE = 0.75  # largest share of the cuts that are chosen for the splits


class CutNeighbourhood:
    """Chooses cuts of a graph; all cuts are bitsets of ops."""

    def __init__(self, costs: CostModel) -> None:
        self._costs = costs
        self._contraction = costs.contraction
        self._readers = [bitset(r) for r in successors(self._contraction.predecessors)]
        self._adjacent: dict[int, tuple[int, ...]] = {}
        self._times: dict[int, float] = {}

    def adjacent(self, cut: int) -> Iterator[int]:
        """The legal cuts with one group of ops more or less before them than ``cut``."""
        groups, producers = self._contraction.groups, self._contraction.predecessors
        inside = bitset(g for g, ops in enumerate(groups) if not ops & ~cut)
        for g, ops in enumerate(groups):
            # A group can leave a cut that holds none of its readers, and join one that holds all
            # of its producers.
            blocking = self._readers[g] & inside if ops & cut else producers[g] & ~inside
            if not blocking:
                yield cut ^ ops

    def moves(self, stages: Stages, allow_empty: bool = False) -> Iterator[Stages]:
        """The legal splits with one group of ops on the stage before or after its own.

        With ``allow_empty`` also those with a whole stage on the one beside it.
        """
        ends = (0, *cuts_between(stages), full(self._costs))
        for place in range(len(stages) - 1):
            before, cut, after = ends[place : place + 3]
            near = dict.fromkeys(self.adjacent(cut))
            if allow_empty:
                near = dict.fromkeys((before, after, *near))
            for other in near:
                is_between = not before & ~other and not other & ~after
                if is_between and other != cut and (allow_empty or other not in (before, after)):
                    parts = tuple(members(other & ~before)), tuple(members(after & ~other))
                    yield (*stages[:place], *parts, *stages[place + 2 :])

    def around(self, splits: Sequence[Stages], most: int) -> tuple[int, ...]:
        """Up to ``most`` cuts: those of ``splits``, then those within RADIUS moves of them.

        Then the cuts along a few orders of the ops and those adjacent to them, by their distance in
        time from the cuts of the splits.
        """
        split_cuts: dict[int, None] = {}
        for stages in splits:
            split_cuts.update(dict.fromkeys(cuts_between(stages)))
        chosen, frontier = dict(split_cuts), list(split_cuts)
        for _ in range(RADIUS):
            start = len(chosen)
            for cut in frontier:
                if len(chosen) < _SPLIT_SHARE * most:
                    chosen.update(dict.fromkeys(self._adjacent_cuts(cut)))
            frontier = list(chosen)[start:]
        chosen.update(dict.fromkeys(self._along_orders(split_cuts, most)))
        return tuple(chosen)[:most]

    def _along_orders(self, split_cuts: Iterable[int], most: int) -> list[int]:
        """The cuts along the orders and those adjacent to them, the nearest in time first."""
        split_times = [self._time_before(cut) for cut in split_cuts]

        def distance(cut: int) -> float:
            time = self._time_before(cut)
            return min((abs(time - t) for t in split_times), default=0.0)

        nearest = sorted(self._order_cuts, key=distance)[:most]
        chosen = dict.fromkeys(nearest)
        for cut in nearest:
            chosen.update(dict.fromkeys(self._adjacent_cuts(cut)))
        return sorted(chosen, key=distance)

    @cached_property
    def _order_cuts(self) -> tuple[int, ...]:
        """The cuts along a few topological orders."""
        groups = self._contraction.groups
        cuts: dict[int, None] = {}
        for order_of in PLAIN_ORDERS:
            order = order_of(self._contraction.predecessors)
            cuts.update(dict.fromkeys(accumulate((groups[g] for g in order), int.__or__)))
        return tuple(cuts)

    def _adjacent_cuts(self, cut: int) -> tuple[int, ...]:
        if cut not in self._adjacent:
            self._adjacent[cut] = tuple(self.adjacent(cut))
        return self._adjacent[cut]

    def _time_before(self, cut: int) -> float:
        """The finite times of the ops before a cut, on the first device."""
        if cut not in self._times:
            times = [self._costs.times[0][op] for op in members(cut)]
            self._times[cut] = math.fsum(t for t in times if t < math.inf)
        return self._times[cut]
