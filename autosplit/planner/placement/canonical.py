"""Which devices a split uses where stages may stay empty.

Stages keep the order of the devices. Splits that differ only in which of several devices that cost the same stays empty
are one split; it is written with every stage on the first device of its kind after the stage before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from autosplit.cuts.stages import Stages


@dataclass(frozen=True)
class Places:
    """Devices in pipeline order; ``kinds`` are equal where two cost the same (see ``planner.assign.kinds_of``)."""

    kinds: tuple[int, ...]

    def first(self, stages: Stages) -> Stages:
        """The split as it is written: each stage on the earliest device it can have."""
        used = [d for d, ops in enumerate(stages) if ops]
        at = -1
        places = []
        for d in used:
            at = self.kinds.index(self.kinds[d], at + 1)
            places.append(at)
        return self.seated([stages[d] for d in used], places)

    def seated(self, parts: Sequence[tuple[int, ...]], devices: Sequence[int]) -> Stages:
        """The split with each part on its device, the other stages empty."""
        own = dict(zip(devices, parts, strict=True))
        return tuple(own.get(d, ()) for d in range(len(self.kinds)))

    def choices(self, used: int, after: int = -1) -> Iterator[tuple[int, ...]]:
        """All choices of ``used`` devices that differ, each ascending, of those with an index above ``after``."""
        if not used:
            yield ()
            return
        tried = set()
        for d in range(after + 1, len(self.kinds) - used + 1):
            if self.kinds[d] not in tried:
                tried.add(self.kinds[d])
                for rest in self.choices(used - 1, d):
                    yield (d, *rest)

    def elsewhere(self, stages: Stages) -> Iterator[Stages]:
        """The splits with the same parts of which one is on a device of another kind."""
        used = [d for d, ops in enumerate(stages) if ops]
        for places in self.choices(len(used)):
            if sum(self.kinds[a] != self.kinds[b] for a, b in zip(used, places, strict=True)) == 1:
                yield self.seated([stages[d] for d in used], places)

    def count(self, used: int) -> int:
        """How many ``choices`` there are: the different subsequences of the kinds, without listing them."""
        found = [1] + [0] * used
        counted: dict[int, list[int]] = {}
        for kind in self.kinds:
            ending = [0, *found[:-1]]
            old = counted.get(kind, [0] * (used + 1))
            found = [f + e - o for f, e, o in zip(found, ending, old, strict=True)]
            counted[kind] = ending
        return found[used]


def widest(shares: Sequence[float], used: int) -> tuple[list[int], list[float]]:
    """The ``used`` stages of largest share of the cost, ascending, and the shares before the cuts between them.

    ``shares`` are those before each cut between all stages, 0 to 1 in any order; what lies between two stages that stay
    is halved among them.
    """
    ends = [0.0, *sorted(shares), 1.0]
    widths = [b - a for a, b in pairwise(ends)]
    kept = sorted(sorted(range(len(widths)), key=lambda d: -widths[d])[:used])
    return kept, [(ends[d + 1] + ends[e]) / 2 for d, e in pairwise(kept)]
