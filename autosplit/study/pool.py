"""Many splits at once: their stage times under any costs as arrays, a thousand splits a millisecond.

Correcting the costs changes op times and overheads, never what the transfers of a split cost, so those are added up once
a split and kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from autosplit.hardware.bench import Stages
from autosplit.planner import CostModel, evaluate

Array = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Pool:
    """Splits of one space. ``ops``: split by op, the ops in pipeline order; ``first``: split by stage, where each begins.

    ``moved``: split by stage, what its transfers cost, in ms.
    """

    stages: tuple[Stages, ...]
    ops: Index
    first: Index
    moved: Array

    def loads(self, costs: CostModel) -> Array:
        """The time of each stage of each split under ``costs``, which differ in times and overheads only."""
        splits, kinds = self.moved.shape
        times = np.array(costs.times)
        spent = times[0][self.ops] if len(times) == 1 else times[self._device, self.ops]
        starts = self.first + np.arange(splits)[:, None] * self.ops.shape[1]
        own = np.add.reduceat(spent.ravel(), starts.ravel()).reshape(splits, kinds)
        return np.asarray(own + self.moved + np.array(costs.overheads), dtype=np.float64)

    def periods(self, costs: CostModel) -> Array:
        """The slowest stage of each split under ``costs``; empty for an empty pool."""
        return np.asarray(self.loads(costs).max(axis=1)) if self.stages else np.zeros(0)

    @cached_property
    def _device(self) -> Index:
        """For each split and place in its order of ops the stage that runs it."""
        places = np.arange(self.ops.shape[1])
        return np.asarray((places[None, :, None] >= self.first[:, None, :]).sum(axis=2) - 1, dtype=np.intp)


class Placing:
    """Makes pools of the splits of ``costs``, what is known of a split kept from pool to pool."""

    def __init__(self, costs: CostModel) -> None:
        free = tuple((0.0,) * len(costs.names) for _ in costs.times)
        self._moving = replace(costs, times=free, overheads=tuple(0.0 for _ in costs.overheads))
        self._known: dict[Stages, tuple[Index, Index, Array]] = {}

    def pool(self, splits: Iterable[Stages]) -> Pool:
        """The splits as a pool, in their order."""
        stages = tuple(splits)
        rows = [self._placed(split) for split in stages]
        if not rows:
            return Pool((), np.zeros((0, 0), np.intp), np.zeros((0, 0), np.intp), np.zeros((0, 0)))
        ops, first, moved = (np.stack(column) for column in zip(*rows, strict=True))
        return Pool(stages, ops, first, moved)

    def _placed(self, split: Stages) -> tuple[Index, Index, Array]:
        if split not in self._known:
            order = np.array([i for ops in split for i in ops], dtype=np.intp)
            first = np.array([0, *accumulate(len(ops) for ops in split[:-1])], dtype=np.intp)
            self._known[split] = order, first, np.array(evaluate(self._moving, split).loads)
        return self._known[split]
