"""Free splits, neither measured nor being measured: the best under some costs, and near a split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from autosplit.errors import Infeasible
from autosplit.study.space.candidate_space import CandidateSpace

CANDIDATES = 32  # free splits that are weighed for a trial
SEARCHED = 2_000  # splits that are visited in search of a free one


def free_splits(
    space: CandidateSpace, costs: Any, taken: frozenset[str], starts: Sequence[Any] = ()
) -> list[Any]:
    """Up to CANDIDATES splits whose keys are not ``taken``, best first; none where none is left.

    The planner lists the best under ``costs``. Where it cannot list enough of them, splits around
    the best and around ``starts`` are added.
    """
    count = len(taken) + CANDIDATES
    try:
        best = space.best(costs, count)
    except Infeasible:
        return []
    splits = {space.key(stages, costs): stages for stages in best}
    if len(best) < count and (space.size is None or len(splits) < space.size):
        for stages in _around(space, [*best[:CANDIDATES], *starts]):
            splits.setdefault(space.key(stages, costs), stages)
    batch = space.evaluator.batch(stages for key, stages in splits.items() if key not in taken)
    order = np.argsort(batch.periods(costs), kind="stable")
    return [batch.stages[n] for n in order[:CANDIDATES]]


def nearest_free(space: CandidateSpace, start: Any | None, taken: frozenset[str]) -> Any | None:
    """A split that is not ``taken``, few moves away from ``start``; None where there is none."""
    if start is not None:
        for stages in _around(space, [start]):
            if space.key(stages) not in taken:
                return stages
    return next(iter(free_splits(space, space.costs, taken)), None)


def _around(space: CandidateSpace, starts: Sequence[Any]) -> Iterator[Any]:
    """Splits by growing distance from ``starts``, those first, up to about SEARCHED of them."""
    visited = {space.key(stages) for stages in starts}
    queue = list(starts)
    for stages in queue:
        yield stages
        if len(queue) >= SEARCHED:
            continue
        for neighbour in space.neighbours(stages):
            key = space.key(neighbour)
            if key not in visited:
                visited.add(key)
                queue.append(neighbour)
