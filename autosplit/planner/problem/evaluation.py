"""A split and what it costs: the reference arithmetic, in plain Python.

Every result of a search is costed with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from autosplit.cuts import bitset, cuts_of, members
from autosplit.cuts import stages as stages_of
from autosplit.errors import SplitError
from autosplit.planner.problem.cost_model import CostModel
from autosplit.planner.problem.runtime_costs import of_device


@dataclass(frozen=True)
class Plan:
    """A split and its cost; ``lower_bound`` is a proven bound of the period, ``optimal`` if met.

    ``stages``: op indices per stage; ``cuts``: the K-1 nested downsets between them; ``loads``,
    ``period`` (the largest load) and ``latency`` (their sum: an item goes through the stages one
    after the other) in the model's unit of time; ``memory``: bytes each stage holds;
    ``bytes_moved``: bytes that stages receive from other stages for one item; ``devices``: for each
    stage the device of the cost model it runs on; ``runtimes``: for each stage the runtime that is
    fastest for it, "" for an empty one, and () where the cost model names no runtimes; ``note``:
    what limit was met and what was done.
    """

    stages: tuple[tuple[int, ...], ...]
    cuts: tuple[int, ...]
    loads: tuple[float, ...]
    period: float
    latency: float
    bytes_moved: float
    memory: tuple[float, ...]
    lower_bound: float = 0.0
    optimal: bool = False
    devices: tuple[int, ...] = ()
    note: str = ""
    runtimes: tuple[str, ...] = ()

    @property
    def gap(self) -> float:
        """(period - lower_bound) / lower_bound, 0 where both are 0."""
        if self.period <= self.lower_bound:
            return 0.0
        return self.period / self.lower_bound - 1 if self.lower_bound > 0 else math.inf

    @property
    def rank(self) -> tuple[float, float, float]:
        """What plans are ordered by: period, latency, bytes moved."""
        return self.period, self.latency, self.bytes_moved


def evaluate(
    costs: CostModel, stages: Sequence[Iterable[int]], *, allow_empty: bool = False
) -> Plan:
    """The cost of a given split, stages of op indices in pipeline order.

    Memory limits do not raise, and a device that cannot run an op has an infinite load.

    Raises:
        SplitError: The stages are no legal split, or the model has another number of devices.
    """
    cuts = check_stages(costs, stages, allow_empty)
    sets = [bitset(ops) for ops in stages]
    if costs.devices not in (None, len(sets)):
        raise SplitError(
            f"{len(sets)} stages on {costs.devices} devices; give one stage per device"
        )
    received: list[list[int]] = [[] for _ in sets]
    sent: list[list[int]] = [[] for _ in sets]
    bytes_moved = 0.0
    stage_of = {i: s for s, ops in enumerate(sets) for i in members(ops)}
    for t, tensor in enumerate(costs.tensors):
        producer = None if tensor.producer is None else stage_of[tensor.producer]
        readers = {stage_of[c] for c in tensor.consumers} - {producer}
        # A tensor is sent once and received once by each other stage, however many ops read it.
        for s in readers:
            received[s].append(t)
        if producer is not None and readers:
            sent[producer].append(t)
            bytes_moved += tensor.bytes * len(readers)
    stage_costs = [stage_cost(costs, s, ops, received[s], sent[s]) for s, ops in enumerate(sets)]
    loads = tuple(cost.load for cost in stage_costs)
    return Plan(
        stages=tuple(tuple(members(ops)) for ops in sets),
        cuts=cuts,
        loads=loads,
        period=max(loads, default=0.0),
        latency=math.fsum(loads),
        bytes_moved=bytes_moved,
        memory=tuple(cost.memory for cost in stage_costs),
        devices=tuple(range(len(sets))),
        runtimes=tuple(cost.runtime for cost in stage_costs) if costs.runtimes else (),
    )


def evaluate_cuts(costs: CostModel, cuts: Sequence[int], *, allow_empty: bool = False) -> Plan:
    """``evaluate`` for K-1 nested downsets, as bitsets of ops.

    Raises:
        SplitError: As ``evaluate``, and for cuts that do not nest.
    """
    return evaluate(costs, stages_of(costs, cuts, allow_empty), allow_empty=allow_empty)


def check_stages(
    costs: CostModel, stages: Sequence[Iterable[int]], allow_empty: bool
) -> tuple[int, ...]:
    """The cuts of a legal split. Raises SplitError for any other."""
    cuts = cuts_of(costs, stages, allow_empty)
    sets = [bitset(ops) for ops in stages]
    for group in costs.contraction.groups:
        if group.bit_count() > 1 and all(group & ops != group for ops in sets):
            names = ", ".join(costs.names[i] for i in members(group))
            raise SplitError(f"ops {names} must stay on one stage; put them on the same")
    return cuts


class StageCost(NamedTuple):
    """What a stage costs; ``runtime``: the one it is fastest in, "" where the model names none."""

    load: float
    memory: float
    runtime: str = ""


def stage_cost(
    costs: CostModel, device: int, ops: int, received: Sequence[int], sent: Sequence[int]
) -> StageCost:
    """The cost of a stage on a device.

    ``ops`` is a bitset; ``received`` and ``sent`` are the tensors that the stage moves.
    """
    if not ops:
        return StageCost(0.0, 0.0)
    send, receive = of_device(costs.send, device), of_device(costs.receive, device)
    transfers = [receive[t] for t in received] + [send[t] for t in sent]
    memory = math.fsum(costs.sizes[i] for i in members(ops))
    if costs.activations:
        memory += math.fsum(costs.tensors[t].bytes for t in (*received, *sent))
    load, name = math.inf, ""
    for runtime in costs.each_runtime:
        times = of_device(runtime.times, device)
        parts = [times[i] for i in members(ops)]
        # fsum rounds once, so a stage costs the same whatever the order of its ops.
        total = math.fsum((of_device(runtime.overheads, device), *parts, *transfers))
        if total < load and not runtime.separated_by(ops):
            load, name = total, runtime.name
    return StageCost(load, memory, name)
