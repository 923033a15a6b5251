"""All splits of a space, where they are few enough: how many there are, and each of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from autosplit.cuts import count_splits, downsets
from autosplit.cuts.stages import Stages
from autosplit.errors import ConfigError

if TYPE_CHECKING:
    from autosplit.study.space.search_space import Space

LISTED = 20_000  # splits that are listed at most
COUNTED = 100_000  # states of the count at most


def size(space: Space) -> int | None:
    """See Space."""
    total = 0
    for used in _numbers(space):
        found = count_splits(space.costs.contraction, used, limit=COUNTED)
        if not found.complete:
            return None
        total += found.total * (space.places.count(used) if space.empty else 1)
    return total


def listed(space: Space) -> tuple[Stages, ...]:
    """See Space."""
    if space.size is None or space.size > LISTED:
        count = "very many" if space.size is None else space.size
        raise ConfigError(
            f"sampler 'exhaustive': '{space.costs.name}' has {count} splits into {space.stages} stages, "
            f"more than {LISTED}; use sampler 'planner'"
        )
    found = filter(space.fits, every(space))
    return tuple(
        sorted(found, key=lambda stages: (space.evaluate(stages).period, space.key(stages)))
    )


def _numbers(space: Space) -> range:
    """How many stages a split may have that are not empty."""
    return range(space.most, 0, -1) if space.empty else range(space.stages, space.stages + 1)


def every(space: Space) -> Iterator[Stages]:
    """Every legal split once, whether it fits the devices or not."""
    contraction = space.costs.contraction
    cuts = [contraction.expand(d) for d in downsets(contraction)][1:-1]

    def chains(start: int, before: int, left: int) -> Iterator[tuple[int, ...]]:
        if not left:
            yield ()
            return
        for n in range(start, len(cuts)):
            if not before & ~cuts[n]:
                for rest in chains(n + 1, cuts[n], left - 1):
                    yield (cuts[n], *rest)

    for used in _numbers(space):
        for chain in chains(0, 0, used - 1):
            parts = space.parts(chain)
            if space.empty:
                yield from (
                    space.places.assign(parts, devices)
                    for devices in space.places.device_choices(used)
                )
            else:
                yield parts
