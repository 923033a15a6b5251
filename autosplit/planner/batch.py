"""Evaluates many deployments at once: their loads under many costs, as arrays.

Costs may differ in the times of ops and in overheads, but not in the costs of transfers, so the
transfers of a stage are added up once and stored. Neighbouring deployments share most of their
stages, and the load of each distinct stage is computed once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autosplit.cuts import bitset
from autosplit.deployment import Row, Stage
from autosplit.planner.costs import CostModel
from autosplit.planner.evaluation import load
from autosplit.planner.problem import Array, Index, Question

_Part = tuple[Row, tuple[int, ...]]
# Of one deployment: places and replicas of its options; share of its stages; busy, batch, memory.
_Columns = tuple[Index, Array, Array, tuple[float, float, float]]


@dataclass(frozen=True, eq=False)
class Batch:
    """Some deployments as arrays; axes: deployment, stage, option.

    A part is a distinct pair of a row and the ops of a stage. ``parts``: the part of each option,
    -1 for none; ``replicas``: 0 for none; ``share``: the number that the longest load of a stage
    with states is divided by for its period, else 0; ``busy``: how many devices a deployment takes;
    ``batch``: items at once. ``row``, ``work`` and ``fixed``: of each part the row, the known time
    of each of its ops, and the time of its transfers, infinite if it cannot run. ``memory``: bytes
    of the largest stage of each deployment, divided by its limit.
    """

    deployments: tuple[tuple[Stage, ...], ...]
    parts: Index
    replicas: Array
    share: Array
    busy: Array
    batch: Array
    row: Index
    work: Array
    fixed: Array
    memory: Array

    def __len__(self) -> int:
        return len(self.deployments)

    def part_loads(self, factors: Array, overheads: Array) -> Array:
        """The load of each part under some costs: factors by row and op, overheads by row.

        For several costs, both arrays and all results have a further first axis.
        """
        loads = np.empty((*overheads.shape[:-1], len(self.row)))
        for row in np.unique(self.row):
            here = self.row == row
            loads[..., here] = factors[..., row, :] @ self.work[here].T + overheads[..., row, None]
        return np.asarray(np.maximum(loads, 0.0) + self.fixed)

    def loads(self, part_loads: Array) -> Array:
        """The load of each option; 0 where there is none."""
        none = np.zeros((*part_loads.shape[:-1], 1))
        return np.asarray(np.concatenate([part_loads, none], axis=-1)[..., self.parts])

    def periods(self, loads: Array) -> Array:
        """The period of each deployment."""
        return np.asarray(self.stage_periods(loads).max(axis=-1, initial=0.0))

    def stage_periods(self, loads: Array) -> Array:
        """The period of each stage of each deployment; 0 where there is none."""
        with np.errstate(divide="ignore", invalid="ignore"):
            rates = np.where(self.replicas > 0, self.replicas / loads, 0.0).sum(axis=-1)
            periods = np.where(rates > 0, 1 / rates, math.inf)
            longest = loads.max(axis=-1, initial=0.0)
            periods = np.where(self.share > 0, longest / self.share, periods)
        # The period is 0 where no replica computes anything, or where there is no stage.
        is_used = self.replicas.sum(axis=-1) > 0
        periods = np.where(is_used & (longest > 0), periods, 0.0)
        return np.asarray(np.where(np.isinf(longest), math.inf, periods))

    def latencies(self, loads: Array) -> Array:
        """The latency of an item in each deployment."""
        return np.asarray(loads.max(axis=-1, initial=0.0).sum(axis=-1) * self.batch)


class BatchEvaluator:
    """Makes batches of the deployments that a question asks for."""

    def __init__(self, costs: CostModel, question: Question) -> None:
        self.costs, self.question = costs, question
        self._places: dict[_Part, int] = {}
        self._columns: dict[tuple[Stage, ...], _Columns] = {}
        self._parts: list[tuple[int, Index]] = []
        self._fixed: list[float] = []
        self._memory: list[float] = []
        self._outputs: dict[int, list[int]] = {}
        self._inputs: dict[int, list[int]] = {}
        for t, tensor in enumerate(costs.tensors):
            if tensor.producer is not None:
                self._outputs.setdefault(tensor.producer, []).append(t)
            for reader in tensor.consumers:
                self._inputs.setdefault(reader, []).append(t)

    @cached_property
    def times(self) -> Array:
        """The known time of each op in each row; 0 where it is infinite."""
        times = np.array([costs.times for costs in self.costs.rows], dtype=np.float64)
        return np.where(np.isfinite(times), times, 0.0)

    @cached_property
    def overheads(self) -> Array:
        """The known overhead of each row."""
        return np.array([costs.overhead for costs in self.costs.rows])

    def batch(self, deployments: Iterable[tuple[Stage, ...]]) -> Batch:
        """The deployments as a batch, in their order."""
        chosen = tuple(deployments)
        columns = [self._columns_of(deployment) for deployment in chosen]
        shapes = [places.shape for places, *_ in columns]
        stages, options = map(max, zip(*shapes, strict=True)) if shapes else (0, 0)
        places = np.full((len(chosen), stages, options), -1, dtype=np.intp)
        replicas, share = np.zeros(places.shape), np.zeros(places.shape[:2])
        for d, (rows, width) in enumerate(shapes):
            here = d, slice(rows), slice(width)
            places[here], replicas[here], share[here[:2]] = columns[d][:3]
        used, parts = np.unique(places, return_inverse=True)
        # The first place is -1 if some deployment has no such option.
        first = int(len(used) > 0 and used[0] < 0)
        used, parts = used[first:].tolist(), parts.reshape(places.shape) - first
        work = np.zeros((len(used), len(self.costs.names)))
        row = np.zeros(len(used), dtype=np.intp)
        for number, place in enumerate(used):
            row[number], ops = self._parts[place]
            work[number, ops] = self.times[row[number], ops]
        fixed = np.array([self._fixed[place] for place in used])
        busy, items, memory = np.array([numbers for *_, numbers in columns]).reshape(-1, 3).T
        return Batch(chosen, parts, replicas, share, busy, items, row, work, fixed, memory)

    def known(self, batch: Batch) -> Array:
        """The periods under the known costs."""
        ones = np.ones_like(self.times)
        return batch.periods(batch.loads(batch.part_loads(ones, self.overheads)))

    def _columns_of(self, deployment: tuple[Stage, ...]) -> _Columns:
        """The columns of a deployment, computed once and stored."""
        columns = self._columns.get(deployment)
        if columns is None:
            shape = len(deployment), max(len(stage.options) for stage in deployment)
            places, replicas = np.full(shape, -1, dtype=np.intp), np.zeros(shape)
            share, streams, busy = np.zeros(shape[0]), self.costs.streams, 0
            for s, stage in enumerate(deployment):
                if self.costs.has_state(stage.ops):
                    share[s] = streams / math.ceil(streams / stage.replicas)
                for o, option in enumerate(stage.options):
                    places[s, o] = self._place(option.row, stage.ops)
                    replicas[s, o] = option.replicas
                    busy += self.question.takes(option.row) * option.replicas
            memory = max(self._memory[place] for place in places[places >= 0].tolist())
            items = deployment[0].options[0].row.batch
            columns = places, replicas, share, (float(busy), float(items), memory)
            self._columns[deployment] = columns
        return columns

    def _place(self, row: Row, ops: tuple[int, ...]) -> int:
        """The number of a part; its values are computed once and stored."""
        part = row, ops
        place = self._places.get(part)
        if place is None:
            place = self._places[part] = len(self._places)
            received, sent = self._transfers(ops)
            costs = self.costs
            number = costs.row_index[row]
            self._parts.append((number, np.array(ops, dtype=np.intp)))
            known = costs.rows[number]
            whole = load(costs, row, ops, received, sent)
            computing = known.overhead + math.fsum(known.times[i] for i in ops)
            self._fixed.append(max(0.0, whole - computing) if whole < math.inf else math.inf)
            self._memory.append(self._excess(row, ops, (*received, *sent)))
        return place

    def _transfers(self, ops: Sequence[int]) -> tuple[list[int], list[int]]:
        """The tensors that a stage receives and sends."""
        tensors, inside = self.costs.tensors, bitset(ops)
        inputs = dict.fromkeys(t for i in ops for t in self._inputs.get(i, ()))
        received = []
        for t in inputs:
            producer = tensors[t].producer
            if producer is None or not inside >> producer & 1:
                received.append(t)
        outputs = [t for i in ops for t in self._outputs.get(i, ())]
        sent = [t for t in outputs if bitset(tensors[t].consumers) & ~inside]
        return received, sent

    def _excess(self, row: Row, ops: Sequence[int], tensors: Sequence[int]) -> float:
        """The bytes of a replica as a share of its limit; 0 without one."""
        limit = self.costs.kind_of(row).memory
        if limit == math.inf:
            return 0.0
        size = math.fsum(self.costs.sizes[i] for i in ops)
        if self.costs.activations:
            size += row.batch * math.fsum(self.costs.held_bytes[t] for t in tensors)
        return size / limit if limit > 0 else (math.inf if size else 0.0)
