"""Many splits at once: their stage times under any costs as arrays, thousands of splits a millisecond.

Correcting the costs changes op times and overheads, never what the transfers of a stage cost, so those are added up once
a stage and kept. Splits near each other share most of their stages, and each stage is timed once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from autosplit.cuts import bitset
from autosplit.cuts.stages import Stages
from autosplit.planner import CostModel
from autosplit.planner.problem.contention import Crowd, costs_of
from autosplit.planner.problem.evaluation import stage_cost

Array = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Table:
    """Different stages. ``ops``: those of all, one stage after the other; ``first``: where each begins.

    ``device``: of each stage its place in the pipeline; ``moved``: what its transfers cost, in ms; ``held``: bytes.
    An empty stage costs nothing; it has no ops and begins where the next one does.
    """

    ops: Index
    first: Index
    device: Index
    moved: Array
    held: Array

    @cached_property
    def sizes(self) -> Index:
        """The number of ops of each stage."""
        return np.diff(self.first, append=len(self.ops))

    def loads(self, costs: CostModel) -> Array:
        """The time of each stage under ``costs``, which differ in times and overheads only."""
        times = np.array(costs.times)
        spent = (
            times[0][self.ops]
            if len(times) == 1
            else times[np.repeat(self.device, self.sizes), self.ops]
        )
        own = np.add.reduceat(
            np.append(spent, 0.0), self.first
        )  # the zero is where empty last stages begin
        overheads = np.array(costs.overheads)
        added = overheads[self.device] if len(overheads) > 1 else overheads
        return np.where(self.sizes == 0, 0.0, own + self.moved + added)

    def and_those_of(self, other: Table) -> Table:
        """These stages, then the other's."""
        first = np.append(self.first, other.first + len(self.ops))
        rest = (
            np.append(getattr(self, name), getattr(other, name))
            for name in ("device", "moved", "held")
        )
        return Table(np.append(self.ops, other.ops), first, *rest)


@dataclass(frozen=True, eq=False)
class Pool:
    """Splits of one space; ``parts``: split by stage, where each stage stands in the ``table``."""

    stages: tuple[Stages, ...]
    parts: Index
    table: Table

    @property
    def memory(self) -> Array:
        """Per split the bytes that its largest stage holds."""
        return np.asarray(self.table.held[self.parts].max(axis=1)) if self.stages else np.zeros(0)

    def loads(self, costs: CostModel) -> Array:
        """The time of each stage of each split under ``costs``, which differ in times and overheads only."""
        return self.table.loads(costs)[self.parts]

    def times(self, costs: CostModel | Crowd) -> Array:
        """``loads``, where costs may depend on how many stages are not empty."""
        if not isinstance(costs, Crowd) or len(costs.costs) == 1 or not self.stages:
            return self.loads(costs_of(costs, self.parts.shape[1]))
        used = (self.table.sizes > 0)[self.parts].sum(axis=1)
        found = np.zeros(self.parts.shape)
        for number in np.unique(used).tolist():
            found[used == number] = self.table.loads(costs.of(number))[self.parts[used == number]]
        return found

    def only(self, where: NDArray[np.bool_]) -> Pool:
        """Some of the splits."""
        stages = tuple(s for s, kept in zip(self.stages, where, strict=True) if kept)
        return Pool(stages, self.parts[where], self.table)

    def and_those_of(self, other: Pool) -> Pool:
        """These splits, then the other's."""
        if not self.stages or not other.stages:
            return self if self.stages else other
        parts = np.concatenate([self.parts, other.parts + len(self.table.first)])
        return Pool((*self.stages, *other.stages), parts, self.table.and_those_of(other.table))

    def periods(self, costs: CostModel | Crowd) -> Array:
        """The slowest stage of each split under ``costs``; empty for an empty pool."""
        return np.asarray(self.times(costs).max(axis=1)) if self.stages else np.zeros(0)


class Placing:
    """Makes pools of the legal splits of ``costs``, what is known of a stage kept from pool to pool."""

    def __init__(self, costs: CostModel) -> None:
        free = tuple((0.0,) * len(costs.names) for _ in costs.times)
        self._moving = replace(costs, times=free, overheads=tuple(0.0 for _ in costs.overheads))
        self._known: dict[tuple[int, tuple[int, ...]], tuple[float, float]] = {}
        self._makes: dict[int, list[int]] = {}
        self._reads: dict[int, list[int]] = {}
        for t, tensor in enumerate(costs.tensors):
            if tensor.producer is not None:
                self._makes.setdefault(tensor.producer, []).append(t)
            for reader in tensor.consumers:
                self._reads.setdefault(reader, []).append(t)

    def pool(self, splits: Iterable[Stages]) -> Pool:
        """The splits as a pool, in their order."""
        stages = tuple(splits)
        numbers: dict[tuple[int, tuple[int, ...]], int] = {}
        parts = [
            [numbers.setdefault(part, len(numbers)) for part in enumerate(split)]
            for split in stages
        ]
        sizes = [len(ops) for _, ops in numbers]
        known = np.array([self._placed(device, ops) for device, ops in numbers]).reshape(-1, 2)
        table = Table(
            np.fromiter(chain.from_iterable(ops for _, ops in numbers), np.intp, sum(sizes)),
            np.cumsum([0, *sizes])[:-1],
            np.array([device for device, _ in numbers], dtype=np.intp),
            *known.T,
        )
        return Pool(
            stages,
            np.array(parts, dtype=np.intp).reshape(len(stages), len(stages[0]) if stages else 0),
            table,
        )

    def _placed(self, device: int, ops: tuple[int, ...]) -> tuple[float, float]:
        """What the transfers of a stage cost, in ms, and the bytes that it holds."""
        if (device, ops) not in self._known:
            tensors, own = self._moving.tensors, frozenset(ops)
            read = dict.fromkeys(t for i in ops for t in self._reads.get(i, ()))
            received = [t for t in read if tensors[t].producer not in own]
            sent = [
                t
                for i in ops
                for t in self._makes.get(i, ())
                if not own.issuperset(tensors[t].consumers)
            ]
            self._known[device, ops] = stage_cost(self._moving, device, bitset(ops), received, sent)
        return self._known[device, ops]
