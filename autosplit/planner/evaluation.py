"""The cost of a given deployment: the reference arithmetic, in plain Python.

The costs of every search result are computed here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autosplit.cuts import bitset, cuts_of, members
from autosplit.deployment import Row, Stage
from autosplit.errors import SplitError
from autosplit.planner.costs import CostModel


@dataclass(frozen=True)
class Plan:
    """A deployment and its cost; ``lower_bound`` is a proven lower bound of the period.

    ``loads``: for each stage the time of an item in a replica, the longest if replicas differ;
    ``periods``: for each stage the time between two results of all its replicas; ``period``: the
    largest of these; ``latency``: the time of an item through all stages, in the model's unit of
    time; ``memory``: bytes of a replica of each stage; ``bytes_moved``: bytes that stages receive
    from other stages for one item; ``optimal``: whether no deployment has a shorter period;
    ``note``: which limit was met, and what the planner did about it.
    """

    stages: tuple[Stage, ...]
    loads: tuple[float, ...]
    periods: tuple[float, ...]
    latency: float
    bytes_moved: float
    memory: tuple[float, ...]
    lower_bound: float = 0.0
    optimal: bool = False
    note: str = ""

    @property
    def period(self) -> float:
        """The time between two results."""
        return max(self.periods, default=0.0)

    @property
    def split(self) -> tuple[tuple[int, ...], ...]:
        """The ops of each stage."""
        return tuple(stage.ops for stage in self.stages)

    @property
    def gap(self) -> float:
        """(period - lower_bound) / lower_bound, 0 where both are 0."""
        if self.period <= self.lower_bound:
            return 0.0
        return self.period / self.lower_bound - 1 if self.lower_bound > 0 else math.inf

    @property
    def rank(self) -> tuple[float, float, float]:
        """The sort key of plans: period, latency, bytes moved."""
        return self.period, self.latency, self.bytes_moved


def evaluate(costs: CostModel, stages: Sequence[Stage]) -> Plan:
    """The cost of a given deployment, stages in pipeline order.

    Memory limits are not checked; a stage in a row that cannot run its ops has an infinite load.

    Raises:
        SplitError: The stages are no legal split, or have a row without costs or no replica.
    """
    check_stages(costs, [stage.ops for stage in stages])
    for number, stage in enumerate(stages):
        unknown = [o.row for o in stage.options if o.row not in costs.row_index]
        if unknown or stage.replicas < 1:
            problem = f"a row without costs, {unknown[0]}" if unknown else "no replica"
            raise SplitError(f"stage {number} has {problem}; give one in a row of the costs")
    received: list[list[int]] = [[] for _ in stages]
    sent: list[list[int]] = [[] for _ in stages]
    bytes_moved = 0.0
    stage_of = {op: s for s, stage in enumerate(stages) for op in stage.ops}
    for t, tensor in enumerate(costs.tensors):
        producer = None if tensor.producer is None else stage_of[tensor.producer]
        readers = {stage_of[c] for c in tensor.consumers} - {producer}
        # A tensor is sent once and received once by each other stage, however many ops read it.
        for s in readers:
            received[s].append(t)
        if producer is not None and readers:
            sent[producer].append(t)
            bytes_moved += tensor.bytes * len(readers)
    loads, periods, memory, latencies = [], [], [], []
    for s, stage in enumerate(stages):
        tensors = received[s], sent[s]
        times = [load(costs, option.row, stage.ops, *tensors) for option in stage.options]
        loads.append(max(times))
        periods.append(period_of(costs, stage, times))
        latencies.append(max(times) * stage.options[0].row.batch)
        memory.append(_memory(costs, stage, *tensors))
    return Plan(
        stages=tuple(stages),
        loads=tuple(loads),
        periods=tuple(periods),
        latency=math.fsum(latencies),
        bytes_moved=bytes_moved,
        memory=tuple(memory),
    )


def fits(costs: CostModel, plan: Plan) -> bool:
    """Whether every replica can run its ops and has the memory for them."""
    if plan.period == math.inf:
        return False
    pairs = zip(plan.stages, plan.memory, strict=True)
    return all(
        size <= costs.kind_of(option.row).memory * (1 + 1e-12)
        for stage, size in pairs
        for option in stage.options
    )


def period_of(costs: CostModel, stage: Stage, loads: Sequence[float]) -> float:
    """The time between two results of a stage whose options have these loads.

    The replicas take items from one queue, the first free one the oldest item, so their rates add
    up. With states each replica serves whole streams, which all have equally many items; the
    busiest replica computes those of ceil(streams / replicas) streams, one after the other.
    """
    if costs.has_state(stage.ops):
        return max(loads) * math.ceil(costs.streams / stage.replicas) / costs.streams
    if min(loads) == 0 or max(loads) == math.inf:
        return max(loads) and math.inf
    if len(loads) == 1:
        return loads[0] / stage.replicas
    pairs = zip(stage.options, loads, strict=True)
    return 1 / math.fsum(option.replicas / time for option, time in pairs)


def load(
    costs: CostModel, row: Row, ops: Iterable[int], received: Sequence[int], sent: Sequence[int]
) -> float:
    """The time of an item in a stage of some ops; ``received`` and ``sent`` are tensor indices."""
    costs_of_row, kind = costs.rows[costs.row_index[row]], costs.kind_of(row)
    if costs_of_row.separated_by(bitset(ops)):
        return math.inf
    transfers = [kind.receive[t] for t in received] if kind.receive else []
    transfers += [kind.send[t] for t in sent] if kind.send else []
    times = (costs_of_row.times[i] for i in ops)
    # fsum rounds once, so a stage costs the same whatever the order of its ops.
    return math.fsum((costs_of_row.overhead, *times, *transfers))


def check_stages(costs: CostModel, stages: Sequence[Iterable[int]]) -> tuple[int, ...]:
    """The cuts of a legal split. Raises SplitError for any other."""
    cuts = cuts_of(costs, stages)
    sets = [bitset(ops) for ops in stages]
    for group in costs.contraction.groups:
        if group.bit_count() > 1 and all(group & ops != group for ops in sets):
            names = ", ".join(costs.names[i] for i in members(group))
            raise SplitError(f"ops {names} must stay on one stage; put them on the same")
    return cuts


def _memory(costs: CostModel, stage: Stage, received: Sequence[int], sent: Sequence[int]) -> float:
    memory = math.fsum(costs.sizes[i] for i in stage.ops)
    if costs.activations:
        batch = stage.options[0].row.batch
        memory += batch * math.fsum(costs.held_bytes[t] for t in (*received, *sent))
    return memory
