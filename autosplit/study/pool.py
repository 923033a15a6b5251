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
from autosplit.study.crowd import Crowd, costs_of

Array = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Pool:
    """Splits of one space. ``ops``: split by op, the ops in pipeline order; ``first``: split by stage, where each begins.

    ``moved``: split by stage, what its transfers cost, in ms; ``memory``: per split the bytes that its largest stage
    holds. An empty stage begins where the next one does, and costs nothing.
    """

    stages: tuple[Stages, ...]
    ops: Index
    first: Index
    moved: Array
    memory: Array

    def loads(self, costs: CostModel) -> Array:
        """The time of each stage of each split under ``costs``, which differ in times and overheads only."""
        splits, kinds = self.moved.shape
        times = np.array(costs.times)
        spent = times[0][self.ops] if len(times) == 1 else times[self._device, self.ops]
        spent = np.hstack([spent, np.zeros((splits, 1))])  # where empty last stages begin
        starts = self.first + np.arange(splits)[:, None] * spent.shape[1]
        own = np.add.reduceat(spent.ravel(), starts.ravel()).reshape(splits, kinds)
        return np.where(self._empty, 0.0, own + self.moved + np.array(costs.overheads))

    @cached_property
    def _empty(self) -> NDArray[np.bool_]:
        ends = np.hstack([self.first[:, 1:], np.full((len(self.first), 1), self.ops.shape[1], np.intp)])
        return np.asarray(self.first == ends)

    def times(self, costs: CostModel | Crowd) -> Array:
        """``loads``, where costs may depend on how many stages are not empty."""
        if not isinstance(costs, Crowd) or len(costs.costs) == 1 or not self.stages:
            return self.loads(costs_of(costs, self.first.shape[1]))
        used = self.first.shape[1] - self._empty.sum(axis=1)
        found = np.zeros(self.moved.shape)
        for number in np.unique(used).tolist():
            found[used == number] = self.only(used == number).loads(costs.of(number))
        return found

    def only(self, where: NDArray[np.bool_]) -> Pool:
        """Some of the splits."""
        stages = tuple(s for s, kept in zip(self.stages, where, strict=True) if kept)
        return Pool(stages, self.ops[where], self.first[where], self.moved[where], self.memory[where])

    def periods(self, costs: CostModel | Crowd) -> Array:
        """The slowest stage of each split under ``costs``; empty for an empty pool."""
        return np.asarray(self.times(costs).max(axis=1)) if self.stages else np.zeros(0)

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
        self._known: dict[Stages, tuple[Index, Index, Array, Array]] = {}

    def pool(self, splits: Iterable[Stages]) -> Pool:
        """The splits as a pool, in their order."""
        stages = tuple(splits)
        rows = [self._placed(split) for split in stages]
        if not rows:
            nothing = np.zeros((0, 0), np.intp)
            return Pool((), nothing, nothing, np.zeros((0, 0)), np.zeros(0))
        ops, first, moved, memory = (np.stack(column) for column in zip(*rows, strict=True))
        return Pool(stages, ops, first, moved, memory)

    def _placed(self, split: Stages) -> tuple[Index, Index, Array, Array]:
        if split not in self._known:
            order = np.array([i for ops in split for i in ops], dtype=np.intp)
            first = np.array([0, *accumulate(len(ops) for ops in split[:-1])], dtype=np.intp)
            cost = evaluate(self._moving, split, allow_empty=True)
            self._known[split] = order, first, np.array(cost.loads), np.array(max(cost.memory))
        return self._known[split]
