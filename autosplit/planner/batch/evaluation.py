"""Many splits at once: their stage times under any costs as arrays, thousands a millisecond.

Correcting the costs changes op times and overheads, never what the transfers of a stage cost. So
transfers are added up once a stage and stored. Neighbouring splits share most of their stages, and
each stage is timed once.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, compress
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from autosplit.cuts import bitset
from autosplit.planner.partition.problem import Array, Index
from autosplit.planner.problem.contention import ContentionCosts, costs_at
from autosplit.planner.problem.cost_model import CostModel
from autosplit.planner.problem.evaluation import StageCost, evaluate, stage_cost
from autosplit.planner.problem.runtime_costs import RuntimeCosts

C = TypeVar("C")


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
class Batch(Generic[C]):
    """Many candidates of one space, called ``stages``: splits or deployments.

    A row of the arrays is a candidate, a column one of its stages. ``parts``: the place of the
    stage in the ``table``, -1 behind the last stage; ``shares``: what its replicas divide its
    load by, 1 there; ``busy``: how many devices or cores the candidate uses.
    """

    stages: tuple[C, ...]
    parts: Index
    shares: Array
    busy: Array
    table: StageBatch

    @property
    def memory(self) -> Array:
        """Per candidate the bytes of its largest stage, of one replica."""
        return np.asarray(self._of_parts(self.table.memory).max(axis=1, initial=0.0))

    def times(self, costs: CostModel | ContentionCosts) -> Array:
        """The load of each stage of each candidate, of one replica; 0 behind the last stage.

        Under costs that depend on how many are busy a load is interpolated between those of one
        and of all.
        """
        if not isinstance(costs, ContentionCosts) or not costs.varies:
            return self._of_parts(self.table.loads(costs_at(costs, 1)))
        low = self._of_parts(self.table.loads(costs.alone))
        high = self._of_parts(self.table.loads(costs.all_busy))
        with np.errstate(invalid="ignore"):
            loads = low + costs.level(self.busy)[:, None] * (high - low)
        return np.where(np.isinf(low), math.inf, loads)

    def periods(self, costs: CostModel | ContentionCosts) -> Array:
        """The period of each candidate; empty for an empty batch."""
        return np.asarray((self.times(costs) / self.shares).max(axis=1, initial=0.0))

    def _of_parts(self, values: Array) -> Array:
        return np.asarray(np.append(values, 0.0)[self.parts])

    def only(self, where: NDArray[np.bool_]) -> Batch[C]:
        """Some of the candidates."""
        rows = (self.parts[where], self.shares[where], self.busy[where])
        return Batch(tuple(compress(self.stages, where)), *rows, self.table)

    def joined(self, other: Batch[C]) -> Batch[C]:
        """These splits, then the other's, of as many stages."""
        if not self.stages or not other.stages:
            return self if self.stages else other
        return Batch(
            (*self.stages, *other.stages),
            np.concatenate([self.parts, other.parts + len(self.table.first)]),
            np.concatenate([self.shares, other.shares]),
            np.append(self.busy, other.busy),
            self.table.joined(other.table),
        )


class Shape(NamedTuple):
    """A candidate as its stages' devices and ops, their shares, and how many cores it uses."""

    parts: Sequence[tuple[int, tuple[int, ...]]]
    shares: Sequence[float]
    busy: int

    def loads(self, costs: CostModel, runtimes: Sequence[str] = ()) -> tuple[float, ...]:
        """The load of a replica of each stage, in some runtimes or in the fastest."""
        devices, stages = zip(*self.parts, strict=True)
        model = costs.on_devices(devices)
        if runtimes:
            model = model.in_runtimes(runtimes)
        return evaluate(model, stages, allow_empty=True).loads


class BatchEvaluator(Generic[C]):
    """Makes batches of the legal splits of ``costs``; what is known of a stage is stored."""

    def __init__(self, costs: CostModel) -> None:
        self.costs = costs
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

    def shape(self, candidate: Any) -> Shape:
        """The parts of a candidate; here of a split, with a device a stage."""
        return Shape(list(enumerate(candidate)), (1,) * len(candidate), sum(map(bool, candidate)))

    def batch(self, candidates: Iterable[C]) -> Batch[C]:
        """The candidates as a batch, in their order."""
        chosen = tuple(candidates)
        shapes = [self.shape(candidate) for candidate in chosen]
        width = max((len(shape.parts) for shape in shapes), default=0)
        # A stage is the same in two candidates where its ops and its device are.
        numbers: dict[tuple[int, tuple[int, ...]], int] = {}
        parts, shares = [], []
        for shape in shapes:
            rest = width - len(shape.parts)
            parts += [numbers.setdefault(part, len(numbers)) for part in shape.parts] + [-1] * rest
            shares += [*shape.shares, *[1] * rest]
        return Batch(
            chosen,
            np.array(parts, dtype=np.intp).reshape(len(chosen), width),
            np.array(shares, dtype=np.float64).reshape(len(chosen), width),
            np.array([shape.busy for shape in shapes], dtype=np.float64),
            self.table(numbers),
        )

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
