"""The problem a search solves: costs of contracted groups as arrays, for K stages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autosplit.cuts import Contraction, bitset, closure, members
from autosplit.errors import ConfigError, Infeasible
from autosplit.planner.problem.constraints import (
    Constraints,
    limited,
    pinned_groups,
    required_tensors,
)
from autosplit.planner.problem.cost_model import CostModel
from autosplit.planner.problem.evaluation import Plan, evaluate_cuts
from autosplit.planner.problem.runtime_costs import disjoint, of_device
from autosplit.planner.problem.shares import device_shares

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Deadline = Callable[[], bool]


class NotFound(Infeasible):
    """Nothing was found, which does not prove that there is nothing."""


class OutOfTime(Exception):
    """The deadline passed; it never leaves the planner. ``bound``: what was proven by then."""

    bound = 0.0


@dataclass(frozen=True)
class RuntimeTables:
    """``times`` and ``overheads`` of one runtime, as in ``Problem``.

    ``together``: bitsets of the groups that only this runtime cannot separate.
    """

    times: Array
    overheads: Array
    together: tuple[int, ...] = ()


@dataclass(frozen=True)
class Problem:
    """``costs`` for ``stages`` stages, contracted to n groups and t tensors between groups.

    Tables have a row a device, or one for all. ``times``: devices x n, infinite where unsupported,
    and ``overheads`` are the least over ``runtimes``, where several compete for a stage;
    ``send``, ``receive``: devices x t; ``sizes``: n bytes; ``bytes``: t; ``tensor_counts``: how
    many tensors of the graph each of the t stands for; ``producer``: group or -1 for a model
    input; ``consumers``: bitsets of groups. ``inside``, ``outside``: per layer 0..K the groups
    that a cut there must, must not hold; ``required``: indices of tensors that some cut must
    separate; ``empty_last``: of the splits that differ only in which stages are empty, list the
    one whose empty stages come last.
    """

    costs: CostModel
    stages: int
    allow_empty: bool
    contraction: Contraction
    times: Array
    send: Array
    receive: Array
    sizes: Array
    bytes: Array
    tensor_counts: Array
    producer: tuple[int, ...]
    consumers: tuple[int, ...]
    overheads: Array
    memory: Array
    inside: tuple[int, ...]
    outside: tuple[int, ...]
    required: tuple[int, ...]
    live_tensors: float
    live_bytes: float
    runtimes: tuple[RuntimeTables, ...]
    empty_last: bool = False

    @property
    def size(self) -> int:
        """The number of groups."""
        return len(self.contraction.groups)

    @property
    def whole(self) -> int:
        """The bitset of all groups."""
        return (1 << self.size) - 1

    @property
    def uniform(self) -> bool:
        """Whether all devices cost the same."""
        return len(self.times) == len(self.send) == len(self.receive) == len(self.overheads) == 1

    @property
    def largest_memory(self) -> float:
        """An upper bound of the bytes that a stage holds."""
        transferred = 2 * self.bytes.sum() if self.costs.activations else 0.0
        return float(self.sizes.sum() + transferred)

    @cached_property
    def reader_index(self) -> tuple[Index, Index]:
        """The consumers of all tensors one after the other, and where each tensor's begin."""
        consumers = [list(members(c)) for c in self.consumers]
        starts = np.cumsum([0, *map(len, consumers)])[:-1]
        flat = list(chain.from_iterable(consumers))
        return np.array(flat, dtype=np.intp), starts.astype(np.intp)

    @cached_property
    def readers(self) -> NDArray[np.int64]:
        """The number of consumers of each tensor."""
        return np.array([c.bit_count() for c in self.consumers], dtype=np.int64)

    @cached_property
    def produced(self) -> NDArray[np.bool_]:
        """Which tensors an op makes; the others are model inputs."""
        return np.array(self.producer, dtype=int) >= 0

    def plan(self, cuts: Sequence[int]) -> Plan:
        """The split at nested bitsets of groups, costed by the reference arithmetic."""
        if self.empty_last:
            inner = [c for c in dict.fromkeys(cuts) if 0 < c < self.whole]
            cuts = [*inner, *[self.whole] * (self.stages - 1 - len(inner))]
        expanded = [self.contraction.expand(c) for c in cuts]
        return evaluate_cuts(self.costs, expanded, allow_empty=self.allow_empty)

    def group_cuts(self, plan: Plan) -> list[int]:
        """The cuts of a plan as bitsets of groups."""
        group_of = self.contraction.group_of()
        return [bitset(group_of[op] for op in members(cut)) for cut in plan.cuts]

    def at(self, table: Array, device: int) -> Any:
        """The row or entry of a device; a table of one serves all."""
        return table[device if len(table) > 1 else 0]

    def rows(self, table: Array, devices: range) -> Array:
        """A row for each of some devices."""
        some = table[devices.start : devices.stop] if len(table) > 1 else table
        return np.broadcast_to(some, (len(devices), *table.shape[1:]))

    def shares(self, devices: range) -> Array:
        """The weights of some devices with which their mean load has a large bound."""
        if devices not in self._shares:
            tables = self.rows(self.times, devices), self.rows(self.overheads, devices)
            self._shares[devices] = device_shares(*tables)
        return self._shares[devices]

    def least(self, table: Array, devices: range) -> Array:
        """Each column of a table at the cheapest weighted one of some devices, 0 without any."""
        if not devices:
            return np.zeros(table.shape[1])
        least: Array = (self.rows(table, devices) * self.shares(devices)[:, None]).min(axis=0)
        return least

    def least_overhead(self, devices: range) -> float:
        """The weighted mean of the overheads of some devices, 0 where they may be empty."""
        if self.allow_empty or not devices:
            return 0.0
        return float(self.shares(devices) @ self.rows(self.overheads, devices))

    @cached_property
    def _shares(self) -> dict[range, Array]:
        return {}


def pose(
    costs: CostModel, stages: int, constraints: Constraints, *, allow_empty: bool = False
) -> Problem:
    """The contracted problem.

    Raises:
        ConfigError: The constraints or the number of stages do not fit the costs.
        Infeasible: Too few groups are left for the stages.
    """
    if stages < 1:
        raise ConfigError(f"number of stages is {stages}; give at least 1")
    if costs.devices not in (None, stages):
        raise ConfigError(f"{stages} stages on {costs.devices} devices; give one stage per device")
    # Ops that may not be separated are groups, so the search never looks at such cuts.
    costs = limited(costs, stages, constraints)
    contraction = costs.contraction
    groups = contraction.groups
    if len(groups) < stages and not allow_empty:
        raise Infeasible(
            f"{stages} stages are too many: only {len(groups)} groups of ops can be separated; "
            f"use at most {len(groups)} stages"
        )
    group_of = contraction.group_of()
    tensors, place_of = _tensors_between_groups(costs, group_of)
    merged = list(tensors.values())
    inside, outside = pinned_groups(costs, group_of, stages, constraints)
    # What a pinned group reads lies before the same cuts, and what reads it after them.
    inside = tuple(closure(contraction, pinned) for pinned in inside)
    outside = tuple(_with_readers(contraction, pinned) for pinned in outside)
    produced = np.array([producer >= 0 for producer, _ in tensors], dtype=bool)
    group_ops = [list(members(ops)) for ops in groups]
    runtimes = _runtime_tables(costs, contraction, group_ops)
    tensor_bytes = [tensor.bytes for tensor in costs.tensors]
    from_op = [float(tensor.producer is not None) for tensor in costs.tensors]
    return Problem(
        costs=costs,
        stages=stages,
        allow_empty=allow_empty,
        contraction=contraction,
        # Sums first: a group that all runtimes keep together has one of them.
        times=least_table(runtime.times for runtime in runtimes),
        send=_summed(costs.send, merged) * produced,  # nobody sends a model input
        receive=_summed(costs.receive, merged),
        sizes=_summed([costs.sizes], group_ops)[0],
        bytes=_summed([tensor_bytes], merged)[0],
        tensor_counts=_summed([from_op], merged)[0],
        producer=tuple(producer for producer, _ in tensors),
        consumers=tuple(consumers for _, consumers in tensors),
        overheads=least_table(runtime.overheads for runtime in runtimes),
        runtimes=runtimes,
        memory=np.array([of_device(costs.memory, d) for d in range(stages)]),
        inside=inside,
        outside=outside,
        required=required_tensors(constraints, place_of),
        live_tensors=math.inf if constraints.live_tensors is None else constraints.live_tensors,
        live_bytes=math.inf if constraints.live_bytes is None else constraints.live_bytes,
    )


def work_bound(problem: Problem) -> float:
    """A proven lower bound of the period from work alone, transfers left out.

    It is the larger of the work shared out over all devices and the largest group on its best one.
    """
    devices = range(problem.stages)
    times = problem.rows(problem.times, devices)
    alone = times + problem.rows(problem.overheads, devices)[:, None]
    shared = problem.least(problem.times, devices).sum() + problem.least_overhead(devices)
    return max(float(alone.min(axis=0).max(initial=0.0)), float(shared))


def _with_readers(contraction: Contraction, groups: int) -> int:
    """The groups and all that read from them, directly or not."""
    for group, producers in enumerate(contraction.predecessors):
        if producers & groups:
            groups |= 1 << group
    return groups


def _tensors_between_groups(
    costs: CostModel, group_of: Sequence[int]
) -> tuple[dict[tuple[int, int], list[int]], dict[str, int | None]]:
    """Tensors by (producer, consumers), and by name the place of each, None inside a group.

    Tensors with the same producer and consumers always cross the same cuts, so they are one.
    """
    merged: dict[tuple[int, int], list[int]] = {}
    place_of: dict[str, int | None] = {}
    for t, tensor in enumerate(costs.tensors):
        producer = -1 if tensor.producer is None else group_of[tensor.producer]
        consumers = bitset({group_of[c] for c in tensor.consumers} - {producer})
        if consumers:
            merged.setdefault((producer, consumers), []).append(t)
        if tensor.producer is not None:
            place_of[tensor.name] = None
    for place, tensors in enumerate(merged.values()):
        for t in tensors:
            if costs.tensors[t].name in place_of:
                place_of[costs.tensors[t].name] = place
    return merged, place_of


def _runtime_tables(
    costs: CostModel, contraction: Contraction, group_ops: Sequence[Sequence[int]]
) -> tuple[RuntimeTables, ...]:
    """The tables of each runtime."""
    group_of = contraction.group_of()
    tables = []
    for runtime in costs.each_runtime:
        # Not contracted: a stage between two groups that form a cycle has none of their ops.
        together = disjoint(bitset(group_of[op] for op in members(ops)) for ops in runtime.groups)
        tables.append(
            RuntimeTables(
                _summed(runtime.times, group_ops),
                np.array(runtime.overheads),
                tuple(groups for groups in together if groups.bit_count() > 1),
            )
        )
    return tuple(tables)


def least_table(tables: Iterable[Array]) -> Array:
    """The elementwise minimum; a table of one row or column stands for all."""
    result: Array = reduce(np.minimum, tables)
    return result


def _summed(table: Sequence[Sequence[float]], merged: Sequence[Sequence[int]]) -> Array:
    """The table with a column for each of the ``merged`` columns, their sum."""
    sums = np.empty((len(table), len(merged)))
    for d, row in enumerate(table):
        for column, indices in enumerate(merged):
            sums[d, column] = sum(row[i] for i in indices)
    return sums
