"""Which devices a split uses where stages may stay empty.

Stages keep the order of the devices. Splits that differ only in which of several equal devices
stays empty are one split. Its canonical form has every stage on the first device of its kind after
the stage before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from autosplit.cuts.stages import Stages


@dataclass(frozen=True)
class CanonicalPlacement:
    """Devices in pipeline order; ``kinds`` are equal where two devices cost the same.

    ``device_order.kinds_of`` makes them.
    """

    kinds: tuple[int, ...]

    def canonical(self, stages: Stages) -> Stages:
        """The canonical form of a split."""
        used = [d for d, ops in enumerate(stages) if ops]
        places: list[int] = []
        for d in used:
            after = places[-1] + 1 if places else 0
            places.append(self.kinds.index(self.kinds[d], after))
        return self.assign([stages[d] for d in used], places)

    def assign(self, parts: Sequence[tuple[int, ...]], devices: Sequence[int]) -> Stages:
        """The split with each part on its device, the other stages empty."""
        ops_of = dict(zip(devices, parts, strict=True))
        return tuple(ops_of.get(d, ()) for d in range(len(self.kinds)))

    def device_choices(self, used: int, after: int = -1) -> Iterator[tuple[int, ...]]:
        """All different choices of ``used`` devices with an index above ``after``, ascending."""
        if not used:
            yield ()
            return
        tried = set()
        for d in range(after + 1, len(self.kinds) - used + 1):
            # The first device of a kind stands for all later ones.
            if self.kinds[d] not in tried:
                tried.add(self.kinds[d])
                for rest in self.device_choices(used - 1, d):
                    yield (d, *rest)

    def on_another_kind(self, stages: Stages) -> Iterator[Stages]:
        """The splits with the same parts of which one is on a device of another kind."""
        used = [d for d, ops in enumerate(stages) if ops]
        parts = [stages[d] for d in used]
        for places in self.device_choices(len(used)):
            pairs = zip(used, places, strict=True)
            if sum(self.kinds[a] != self.kinds[b] for a, b in pairs) == 1:
                yield self.assign(parts, places)

    def count(self, used: int) -> int:
        """The number of ``device_choices``: the different subsequences of the kinds."""
        # Each kind extends all subsequences; those that ended in the same kind before would be
        # counted twice (the standard count of distinct subsequences).
        counts = [1] + [0] * used
        ended: dict[int, list[int]] = {}
        for kind in self.kinds:
            ending = [0, *counts[:-1]]
            repeated = ended.get(kind, [0] * (used + 1))
            counts = [c + e - r for c, e, r in zip(counts, ending, repeated, strict=True)]
            ended[kind] = ending
        return counts[used]


def largest_stages(shares: Sequence[float], used: int) -> tuple[list[int], list[float]]:
    """The ``used`` stages of largest share of the cost, ascending, and the shares at their cuts.

    ``shares`` are those before each cut between all stages, 0 to 1 in any order; what lies between
    two stages that stay is halved among them.
    """
    ends = [0.0, *sorted(shares), 1.0]
    widths = [b - a for a, b in pairwise(ends)]
    by_width = sorted(range(len(widths)), key=lambda d: -widths[d])
    largest = sorted(by_width[:used])
    return largest, [(ends[d + 1] + ends[e]) / 2 for d, e in pairwise(largest)]
