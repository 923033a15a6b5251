"""Many splits at once: their stage times under any costs as arrays, thousands a millisecond.

Correcting the costs changes op times and overheads, never what the transfers of a stage cost. So
transfers are added up once a stage and stored. Neighbouring splits share most of their stages, and
each stage is timed once.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from autosplit.cuts import bitset
from autosplit.cuts.stages import Stages
from autosplit.planner.problem.contention import ContentionCosts, costs_at
from autosplit.planner.problem.cost_model import CostModel
from autosplit.planner.problem.evaluation import StageCost, stage_cost
from autosplit.planner.problem.problem import Array, Index
from autosplit.planner.problem.runtime_costs import RuntimeCosts


@dataclass(frozen=True, eq=False)
class StageBatch:
    """Different stages.

    ``ops``: those of all, one stage after the other; ``first``: where each begins; ``device``: of
    each stage its place in the pipeline; ``transfer``: what its transfers cost, in ms; ``memory``:
    bytes; ``separated``: a row a runtime, true where the stage holds a part of its groups. An empty
    stage costs nothing and begins where the next one does.
    """

    ops: Index
    first: Index
    device: Index
    transfer: Array
    memory: Array
    separated: NDArray[np.bool_]

    @cached_property
    def sizes(self) -> Index:
        """The number of ops of each stage."""
        return np.diff(self.first, append=len(self.ops))

    def loads(self, costs: CostModel) -> Array:
        """The time of each stage under ``costs``, which differ in times and overheads only."""
        times = [self._times(runtime) for runtime in costs.each_runtime]
        least = np.min(np.where(self.separated, math.inf, times), axis=0)
        loads: Array = np.where(self.sizes == 0, 0.0, least)
        return loads

    def _times(self, runtime: RuntimeCosts) -> Array:
        """The time of each stage in a runtime."""
        rows = np.array(runtime.times)
        if len(rows) == 1:
            op_times = rows[0][self.ops]
        else:
            op_times = rows[np.repeat(self.device, self.sizes), self.ops]
        # Empty last stages begin behind the last op; the zero gives them something to add up.
        work: Array = np.add.reduceat(np.append(op_times, 0.0), self.first)
        overheads = np.array(runtime.overheads)
        overhead: Array = overheads[self.device] if len(overheads) > 1 else overheads
        return work + self.transfer + overhead

    def joined(self, other: StageBatch) -> StageBatch:
        """These stages, then the other's."""
        return StageBatch(
            np.append(self.ops, other.ops),
            np.append(self.first, other.first + len(self.ops)),
            np.append(self.device, other.device),
            np.append(self.transfer, other.transfer),
            np.append(self.memory, other.memory),
            np.append(self.separated, other.separated, axis=1),
        )


@dataclass(frozen=True, eq=False)
class SplitBatch:
    """Splits of one space; ``parts``: split by stage, the place of each stage in the ``table``."""

    stages: tuple[Stages, ...]
    parts: Index
    table: StageBatch

    @property
    def memory(self) -> Array:
        """Per split the bytes of its largest stage."""
        return np.asarray(self.table.memory[self.parts].max(axis=1)) if self.stages else np.zeros(0)

    def loads(self, costs: CostModel) -> Array:
        """The time of each stage of each split under ``costs``."""
        return self.table.loads(costs)[self.parts]

    def times(self, costs: CostModel | ContentionCosts) -> Array:
        """``loads``, where costs may depend on how many stages are not empty."""
        if not isinstance(costs, ContentionCosts) or len(costs.costs) == 1 or not self.stages:
            return self.loads(costs_at(costs, self.parts.shape[1]))
        active = (self.table.sizes > 0)[self.parts].sum(axis=1)
        times = np.zeros(self.parts.shape)
        for number in np.unique(active).tolist():
            rows = active == number
            times[rows] = self.table.loads(costs.at(number))[self.parts[rows]]
        return times

    def only(self, where: NDArray[np.bool_]) -> SplitBatch:
        """Some of the splits."""
        stages = tuple(s for s, chosen in zip(self.stages, where, strict=True) if chosen)
        return SplitBatch(stages, self.parts[where], self.table)

    def joined(self, other: SplitBatch) -> SplitBatch:
        """These splits, then the other's."""
        if not self.stages or not other.stages:
            return self if self.stages else other
        parts = np.concatenate([self.parts, other.parts + len(self.table.first)])
        return SplitBatch((*self.stages, *other.stages), parts, self.table.joined(other.table))

    def periods(self, costs: CostModel | ContentionCosts) -> Array:
        """The slowest stage of each split under ``costs``; empty for an empty batch."""
        return np.asarray(self.times(costs).max(axis=1)) if self.stages else np.zeros(0)


class BatchEvaluator:
    """Makes batches of the legal splits of ``costs``; what is known of a stage is stored."""

    def __init__(self, costs: CostModel) -> None:
        no_times = tuple((0.0,) * len(costs.names) for _ in costs.times)
        no_overheads = tuple(0.0 for _ in costs.overheads)
        self._transfers = replace(costs, times=no_times, overheads=no_overheads, runtimes=())
        self._runtimes = costs.each_runtime
        self._stage_costs: dict[tuple[int, tuple[int, ...]], StageCost] = {}
        self._outputs: dict[int, list[int]] = {}
        self._inputs: dict[int, list[int]] = {}
        for t, tensor in enumerate(costs.tensors):
            if tensor.producer is not None:
                self._outputs.setdefault(tensor.producer, []).append(t)
            for reader in tensor.consumers:
                self._inputs.setdefault(reader, []).append(t)

    def batch(self, splits: Iterable[Stages]) -> SplitBatch:
        """The splits as a batch, in their order."""
        stages = tuple(splits)
        numbers: dict[tuple[int, tuple[int, ...]], int] = {}
        # A stage is the same in two splits where its ops and its device are.
        every_part = [part for split in stages for part in enumerate(split)]
        parts = [numbers.setdefault(part, len(numbers)) for part in every_part]
        width = len(stages[0]) if stages else 0
        table = self.table(numbers)
        return SplitBatch(stages, np.array(parts, dtype=np.intp).reshape(len(stages), width), table)

    def table(self, parts: Collection[tuple[int, tuple[int, ...]]]) -> StageBatch:
        """Different stages, each a device and the ops on it, in their order."""
        sizes = [len(ops) for _, ops in parts]
        stage_costs = [self._stage_cost(device, ops) for device, ops in parts]
        every_stage = [bitset(ops) for _, ops in parts]
        separated = [list(map(r.separated_by, every_stage)) for r in self._runtimes]
        return StageBatch(
            np.fromiter(chain.from_iterable(ops for _, ops in parts), np.intp, sum(sizes)),
            np.cumsum([0, *sizes])[:-1],
            np.array([device for device, _ in parts], dtype=np.intp),
            np.array([cost.load for cost in stage_costs]),
            np.array([cost.memory for cost in stage_costs]),
            np.array(separated, dtype=bool),
        )

    def _stage_cost(self, device: int, ops: tuple[int, ...]) -> StageCost:
        """What the transfers of a stage cost, in ms, and the bytes that it holds."""
        key = device, ops
        if key not in self._stage_costs:
            tensors, inside = self._transfers.tensors, frozenset(ops)
            inputs = dict.fromkeys(t for i in ops for t in self._inputs.get(i, ()))
            received = [t for t in inputs if tensors[t].producer not in inside]
            # A tensor is sent where some reader is on another stage.
            outputs = [t for i in ops for t in self._outputs.get(i, ())]
            sent = [t for t in outputs if not inside.issuperset(tensors[t].consumers)]
            self._stage_costs[key] = stage_cost(
                self._transfers, device, bitset(ops), received, sent
            )
        return self._stage_costs[key]
