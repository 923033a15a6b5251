"""All splits of a graph, where they are few enough: how many there are, and each of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from autosplit.cuts import count_splits, downsets
from autosplit.cuts.stages import Stages, stages_between
from autosplit.planner import CostModel
from autosplit.planner.placement.canonical import CanonicalPlacement

COUNT_LIMIT = 100_000  # states of the count


def count_all(
    costs: CostModel, stage_counts: Iterable[int], placement: CanonicalPlacement
) -> int | None:
    """The number of legal splits into any of ``stage_counts``; None where counting takes too long.

    Each different choice of devices for the stages is a split of its own.
    """
    total = 0
    for used in stage_counts:
        count = count_splits(costs.contraction, used, limit=COUNT_LIMIT)
        if not count.complete:
            return None
        total += count.total * placement.count(used)
    return total


def all_splits(
    costs: CostModel, stage_counts: Iterable[int], placement: CanonicalPlacement
) -> Iterator[Stages]:
    """Every split that ``count_all`` counts, once, whether it fits the devices or not."""
    contraction = costs.contraction
    cuts = [contraction.expand(d) for d in downsets(contraction)][1:-1]
    for used in stage_counts:
        for chain in _chains(cuts, 0, 0, used - 1):
            parts = stages_between(costs, chain)
            for devices in placement.device_choices(used):
                yield placement.assign(parts, devices)


def _chains(cuts: list[int], start: int, before: int, count: int) -> Iterator[tuple[int, ...]]:
    """Every chain of ``count`` nested cuts after ``before``, from those at ``start`` on."""
    if not count:
        yield ()
        return
    for n in range(start, len(cuts)):
        if not before & ~cuts[n]:
            for rest in _chains(cuts, n + 1, cuts[n], count - 1):
                yield (cuts[n], *rest)
