"""Placements of one block, as a model of its own.

Each of the two ops around a block is on an accelerator or on the CPU. These ends have neither time
nor size here. Tensors from outside of the block are left out, which can only lower the bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from autosplit.cuts import bitset, members
from autosplit.planner.accelerators.placement import Placement, evaluate_placement
from autosplit.planner.accelerators.serial_blocks import Block
from autosplit.planner.problem.cost_model import CostModel

# A placement that is better than the given one, or that one, with a bound of the latency. None if
# no time is left.
Improve = Callable[[CostModel, Sequence[float], Placement], Placement | None]


class Choice(NamedTuple):
    """A placement of a block, or a bound of all.

    ``devices``: accelerators beside that of the first op; ``memory``: what the inner ops take on
    the accelerators of the first and of the last op; ``stages``: the ops of these two, then those
    of the others.
    """

    latency: float
    devices: int
    memory: tuple[float, float] = (0.0, 0.0)
    stages: tuple[tuple[int, ...], ...] = ()


class BlockPart:
    """A block on ``extra`` accelerators beside those of its ends, where these have one.

    ``bound``: of all placements; ``choices``: those found.
    """

    def __init__(self, block: Block, first_on: bool, last_on: bool, extra: int) -> None:
        self.ops, self.limit = block.ops, block.costs.memory[0]
        self.costs, self.cpu_times = _model(block, first_on, last_on)
        self.bound = Choice(block.bound(extra), extra + last_on)
        self.choices: list[Choice] = []
        self._first = 0 if first_on else -1
        self._last = len(self.ops) - 1 if last_on else -1
        count = first_on + last_on + extra
        self.best = evaluate_placement(self.costs, self.cpu_times, [()] * count)
        first, last = ([end] for end in (self._first, self._last))
        inner = [self.ops.index(op) for op in block.inner]
        plain = [[first, last]]
        if inner:
            plain += [[first + inner, last], [first, inner + last], [first, last, inner]]
        for stages in plain:
            self._try([[op for op in stage if op >= 0] for stage in stages])
        self.is_solved = not inner or count == 0
        if self.is_solved:
            least = min((choice.latency for choice in self.choices), default=math.inf)
            self.bound = self.bound._replace(latency=least)

    @property
    def slack(self) -> float:
        """By how much the best placement may be better than the best one found."""
        return self.best.latency - self.bound.latency

    def solve(self, improve: Improve) -> bool:
        """Look for the best placement and a better bound; whether there was time for it."""
        placement = improve(self.costs, self.cpu_times, self.best)
        if placement is None:
            return False
        self._keep(placement)
        latency = max(self.bound.latency, placement.lower_bound)
        self.bound = self.bound._replace(latency=latency)
        self.is_solved = True
        return True

    def _try(self, stages: Iterable[Sequence[int]]) -> None:
        """Keep a placement if it has enough accelerators and tears no group."""
        used = [stage for stage in stages if stage]
        torn = any(0 != g & ops != g for g in self.costs.groups for ops in map(bitset, used))
        empty = len(self.best.accelerators) - len(used)
        if empty >= 0 and not torn:
            used += [()] * empty
            self._keep(evaluate_placement(self.costs, self.cpu_times, used))

    def _keep(self, placement: Placement) -> None:
        """Add a placement to the choices unless it does not fit or has both ends on one device."""
        stages: list[tuple[int, ...]] = [(), ()]
        memory = [0.0, 0.0]
        for stage, size in zip(placement.accelerators, placement.memory, strict=True):
            ops = tuple(self.ops[place] for place in stage)
            ends = [self._first in stage, self._last in stage]
            if all(ends) or size > self.limit:
                return
            if any(ends):
                stages[ends.index(True)] = ops
                memory[ends.index(True)] = size
            elif ops:
                stages.append(ops)
        if placement.latency < math.inf:
            devices = len(stages) - 2 + (self._last >= 0)
            self.choices.append(
                Choice(placement.latency, devices, (memory[0], memory[1]), (*stages,))
            )
            self.best = min(self.best, placement, key=lambda each: each.latency)


def _model(block: Block, first_on: bool, last_on: bool) -> tuple[CostModel, list[float]]:
    """The costs of a block whose ends are on accelerators or on the CPU, and the CPU's times."""
    costs, places = block.costs, {op: place for place, op in enumerate(block.ops)}
    times = [costs.times[0][op] for op in block.ops]
    cpu_times = [block.cpu_times[op] for op in block.ops]
    sizes = [costs.sizes[op] for op in block.ops]
    tensors, inside = [], []
    for t, tensor in enumerate(costs.tensors):
        readers = tuple(places[op] for op in tensor.consumers if op in places)
        if tensor.producer in places and readers:
            tensors.append(replace(tensor, producer=places[tensor.producer], consumers=readers))
            inside.append(t)
    send, receive = ([row[t] for t in inside] for row in (costs.send[0], costs.receive[0]))
    # Longer than any placement takes.
    too_long = 1.0 + math.fsum(filter(math.isfinite, (*times, *cpu_times, *send, *receive)))
    for end, is_on in ((block.first, first_on), (block.last, last_on)):
        if end is not None:
            place = places[end]
            times[place], cpu_times[place] = (0.0, too_long) if is_on else (math.inf, 0.0)
            sizes[place] = 0.0
    producers = (
        [places[p] for p in members(costs.predecessors[op]) if p in places] for op in block.ops
    )
    groups = [bitset(places[op] for op in members(group) if op in places) for group in costs.groups]
    model = CostModel(
        costs.name,
        tuple(costs.names[op] for op in block.ops),
        tuple(map(bitset, producers)),
        (tuple(times),),
        tuple(tensors),
        (tuple(send),),
        (tuple(receive),),
        sizes=tuple(sizes),
        memory=costs.memory,
        activations=costs.activations,
        groups=tuple(groups),
    )
    return model, cpu_times
