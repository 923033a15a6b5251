"""A split and what it costs: the reference arithmetic, in plain Python, that every search result is measured with."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from autosplit.cuts import bitset, full, members
from autosplit.errors import SplitError
from autosplit.planner.problem.cost_model import CostModel


@dataclass(frozen=True)
class Plan:
    """A split and its cost; ``lower_bound`` is a proven bound of the least period, ``optimal`` whether it is met.

    ``stages``: op indices per stage; ``cuts``: the K-1 nested downsets between them; ``loads``, ``period`` (the largest
    load) and ``latency`` (their sum: an item goes through the stages one after the other) in the model's unit of time;
    ``memory``: bytes each stage holds; ``bytes_moved``: bytes that stages receive from other stages for one item;
    ``devices``: for each stage the device of the cost model it runs on; ``note``: what limit was met and what was done.
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

    @property
    def gap(self) -> float:
        """(period - lower_bound) / lower_bound, 0 where both are 0."""
        if self.period <= self.lower_bound:
            return 0.0
        return self.period / self.lower_bound - 1 if self.lower_bound > 0 else math.inf


def evaluate(
    costs: CostModel, stages: Sequence[Iterable[int]], *, allow_empty: bool = False
) -> Plan:
    """The cost of a given split, stages of op indices in pipeline order.

    Raises SplitError, naming the op, where the stages are no legal split, and where the model tells another number of
    devices apart. Memory limits and devices that cannot run an op do not raise: an infinite load says so for the
    latter.
    """
    sets = [bitset(ops) for ops in stages]
    check_stages(costs, stages, allow_empty)
    if costs.devices not in (None, len(sets)):
        raise SplitError(f"{len(sets)} stages on {costs.devices} devices; give one stage a device")
    loads, memory, moved = [], [], 0.0
    received: list[list[int]] = [[] for _ in sets]
    sent: list[list[int]] = [[] for _ in sets]
    stage_of = {i: s for s, ops in enumerate(sets) for i in members(ops)}
    for t, tensor in enumerate(costs.tensors):
        maker = None if tensor.producer is None else stage_of[tensor.producer]
        readers = {stage_of[c] for c in tensor.consumers} - {maker}
        for s in readers:
            received[s].append(t)
        if maker is not None and readers:
            sent[maker].append(t)
            moved += tensor.bytes * len(readers)
    for s, ops in enumerate(sets):
        load, held = stage_cost(costs, s, ops, received[s], sent[s])
        loads.append(load)
        memory.append(held)
    ends = [0]
    for ops in sets:
        ends.append(ends[-1] | ops)
    return Plan(
        stages=tuple(tuple(members(ops)) for ops in sets),
        cuts=tuple(ends[1:-1]),
        loads=tuple(loads),
        period=max(loads, default=0.0),
        latency=math.fsum(loads),
        bytes_moved=moved,
        memory=tuple(memory),
        devices=tuple(range(len(sets))),
    )


def evaluate_cuts(costs: CostModel, cuts: Sequence[int], *, allow_empty: bool = False) -> Plan:
    """``evaluate`` for K-1 nested downsets, as bitsets of ops. Raises SplitError for cuts that do not nest, and as it does."""
    ends = (0, *cuts, full(costs))
    for number, (before, after) in enumerate(pairwise(ends)):
        if back := before & ~after:
            raise SplitError(
                f"op '{costs.names[next(members(back))]}' lies before cut {number}, not the next; nest them"
            )
    return evaluate(
        costs, [tuple(members(b & ~a)) for a, b in pairwise(ends)], allow_empty=allow_empty
    )


def check_stages(costs: CostModel, stages: Sequence[Iterable[int]], allow_empty: bool) -> None:
    """Raise SplitError unless the stages are a legal split of the ops."""
    seen = 0
    for s, ops in enumerate(map(tuple, stages)):
        if not ops and not allow_empty:
            raise SplitError(f"stage {s} is empty; give it an op or use fewer stages")
        for i in ops:
            if not 0 <= i < len(costs.names) or seen >> i & 1:
                raise SplitError(
                    f"stage {s} names op {i}, which is unknown or given twice; give each op once"
                )
            seen |= 1 << i
        for i in ops:
            if missing := costs.predecessors[i] & ~seen:
                late = costs.names[next(members(missing))]
                raise SplitError(
                    f"op '{costs.names[i]}' is in stage {s}, but '{late}', which it reads from, is later"
                )
    if missing := full(costs) & ~seen:
        raise SplitError(
            f"op '{costs.names[next(members(missing))]}' is in no stage; give each op a stage"
        )
    sets = [bitset(ops) for ops in stages]
    for group in costs.contraction.groups:
        if group.bit_count() > 1 and all(group & ops != group for ops in sets):
            names = ", ".join(costs.names[i] for i in members(group))
            raise SplitError(f"ops {names} must stay on one stage; put them on the same")


def row(table: Sequence[Sequence[float]], device: int) -> Sequence[float]:
    """The row of a device; a table of one row serves all."""
    return table[device if len(table) > 1 else 0]


def value(table: Sequence[float], device: int) -> float:
    """The entry of a device; a table of one entry serves all."""
    return table[device if len(table) > 1 else 0]


def stage_cost(
    costs: CostModel, device: int, ops: int, received: Sequence[int], sent: Sequence[int]
) -> tuple[float, float]:
    """The load and the memory of the stage of ``ops`` (a bitset) on a device, given the tensors it receives and sends."""
    if not ops:
        return 0.0, 0.0
    times, send, receive = (
        row(costs.times, device),
        row(costs.send, device),
        row(costs.receive, device),
    )
    # fsum rounds once, so a stage costs the same whatever the order of its ops
    load = math.fsum(
        (
            value(costs.overheads, device),
            *(times[i] for i in members(ops)),
            *(receive[t] for t in received),
            *(send[t] for t in sent),
        )
    )
    held = math.fsum(costs.sizes[i] for i in members(ops))
    if costs.activations:
        held += math.fsum(costs.tensors[t].bytes for t in (*received, *sent))
    return load, held
