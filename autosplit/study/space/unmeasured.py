"""Splits that are free, neither measured nor being measured: the best under some costs, and those near a split."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from autosplit.cuts.stages import Stages
from autosplit.errors import Infeasible
from autosplit.planner import CostModel
from autosplit.planner.problem.contention import ContentionCosts
from autosplit.study.acquisition.history import History
from autosplit.study.space.search_space import Space

AHEAD = 32  # splits that are looked at each time
SEARCHED = 2_000  # splits that are visited in search of one that is free


def free_splits(
    space: Space,
    costs: CostModel | ContentionCosts,
    taken: frozenset[str],
    starts: tuple[Stages, ...],
) -> list[Stages]:
    """Up to AHEAD splits that are not taken, best first under ``costs``; empty only where none is left.

    The planner lists the best; where it cannot list enough of them, those around the best and ``starts`` are added.
    """
    try:
        best = space.best(costs, len(taken) + AHEAD)
    except Infeasible:
        return []
    found = {space.key(stages): stages for stages in best}
    if len(best) < len(taken) + AHEAD and (space.size is None or len(found) < space.size):
        for stages in _around(space, [*best[:AHEAD], *starts]):
            found.setdefault(space.key(stages), stages)
    pool = space.placing.batch(stages for key, stages in found.items() if key not in taken)
    order = np.argsort(pool.periods(costs), kind="stable")
    return [pool.stages[n] for n in order[:AHEAD]]


def nearest_free(space: Space, start: Stages | None, history: History) -> Stages | None:
    """A free split few moves of one op away from ``start``; None where there is none."""
    if start is not None:
        for found in _around(space, [start]):
            if space.key(found) not in history.taken:
                return found
    return next(iter(free_splits(space, space.costs, history.taken, ())), None)


def _around(space: Space, starts: list[Stages]) -> Iterable[Stages]:
    """Splits by growing distance from ``starts``, those first, as far as SEARCHED of them."""
    seen = {space.key(stages) for stages in starts}
    queue = list(starts)
    for stages in queue:
        yield stages
        if len(queue) >= SEARCHED:
            continue
        for neighbour in space.neighbours(stages):
            if (key := space.key(neighbour)) not in seen:
                seen.add(key)
                queue.append(neighbour)
