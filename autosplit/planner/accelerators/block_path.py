"""Placements of least latency for graphs whose ops come block after block.

A shortest path chooses for each block whether one accelerator has all of it, or how many share it.
Lower bounds stand for blocks that are not solved yet; those on the shortest path are solved until
none is left.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from autosplit.cuts import members
from autosplit.planner.accelerators.block_parts import BlockPart, Choice, Improve
from autosplit.planner.accelerators.placement import SAME, Placement, evaluate_placement
from autosplit.planner.accelerators.serial_blocks import serial_blocks
from autosplit.planner.problem.cost_model import CostModel

_MOST = 300  # paths to each block that are followed


def improve_blocks(
    costs: CostModel, cpu_times: Sequence[float], best: Placement, improve: Improve
) -> Placement:
    """``best`` or a better placement on as many accelerators, with a bound; they must be alike.

    ``improve`` is called for some blocks with some numbers of accelerators, until it has no time
    left.
    """
    paths = _Paths(costs, cpu_times, len(best.accelerators))
    while len(paths.blocks) > 2:
        best = paths.better(best)
        path = paths.shortest(best.latency, proven=True)
        if not path:
            return replace(best, lower_bound=best.latency, optimal=True)
        best = replace(best, lower_bound=max(best.lower_bound, path[-1].latency))
        unsolved = [step.part for step in path if step.part and not step.part.is_solved]
        if not unsolved or not max(unsolved, key=lambda part: part.slack).solve(improve):
            break
    return best


class _Step(NamedTuple):
    """The last step of a path through the first blocks.

    ``used``: accelerators so far; ``is_on``: whether the last op is on one; ``memory``: what that
    one holds. A step without a part leaves the block to the accelerator of its first op.
    """

    latency: float
    used: int
    is_on: bool
    memory: float
    before: _Step | None = None
    part: BlockPart | None = None
    choice: Choice | None = None


class _Paths:
    """The paths through the blocks of a graph."""

    def __init__(self, costs: CostModel, cpu_times: Sequence[float], accelerators: int) -> None:
        self.costs, self.cpu_times, self.accelerators = costs, cpu_times, accelerators
        self.limit = costs.memory[0]
        self.blocks = serial_blocks(costs, cpu_times)
        self._after = self._least_after()
        self._parts: dict[tuple[int, bool, bool, int], BlockPart] = {}

    def better(self, best: Placement) -> Placement:
        """``best``, or the placement of the shortest path through the choices found so far."""
        path = self.shortest(best.latency, proven=False)
        if not path:
            return best
        # A path leaves out tensors that skip a block, so its latency is not quite that.
        placement = evaluate_placement(self.costs, self.cpu_times, self._stages(path))
        if placement.latency >= best.latency or max(placement.memory) > self.limit:
            return best
        return replace(placement, lower_bound=best.lower_bound)

    def _stages(self, path: Sequence[_Step]) -> list[list[int]]:
        """The ops of each accelerator."""
        stages: list[list[int]] = []
        current: list[int] = []  # the ops of the accelerator with the first op of the block
        for block, step in zip(self.blocks, path, strict=True):
            if step.choice is None:
                current += [op for op in block.ops if op != block.first]
                continue
            first, last, *others = step.choice.stages
            current += [op for op in first if op != block.first]
            current = [*last]
            stages += [current, *map(list, others)]
        stages = [ops for ops in stages if ops]
        return stages + [[]] * (self.accelerators - len(stages))

    def shortest(self, limit: float, *, proven: bool) -> list[_Step]:
        """The steps of the shortest path with a latency below ``limit``; empty if there is none.

        ``proven``: through bounds, so no placement is faster; otherwise through choices.
        """
        steps = [_Step(0.0, 0, False, 0.0)]
        for number, block in enumerate(self.blocks):
            after = 0.0 if block.last is None else self._after[block.last]
            most = limit * (1 - SAME) - after
            nexts = [n for step in steps for n in self._next(step, number, proven=proven)]
            shorter = [step for step in nexts if step.latency < most]
            steps = _undominated(shorter, proven=proven)
        path: list[_Step] = []
        step = min(steps, key=lambda step: step.latency, default=None)
        while step is not None and step.before is not None:
            path.append(step)
            step = step.before
        return path[::-1]

    def _least_after(self) -> list[float]:
        """Per op the longest path of ops after it, each where it is fastest."""
        fastest = list(map(min, self.costs.times[0], self.cpu_times))
        after = [0.0] * len(fastest)
        for op, producers in reversed(list(enumerate(self.costs.predecessors))):
            for producer in members(producers):
                after[producer] = max(after[producer], after[op] + fastest[op])
        return after

    def _next(self, step: _Step, number: int, *, proven: bool) -> Iterator[_Step]:
        """The paths with one block more."""
        block = self.blocks[number]
        memory, latency = step.memory + block.size, step.latency + block.time
        if step.is_on and block.last is not None and memory <= self.limit:
            yield _Step(latency, step.used, True, memory, step)
        for is_on in (False,) if block.last is None else (False, True):
            most = self.accelerators - step.used - is_on if block.inner else 0
            for extra in range(most + 1):
                part = self._part(number, step.is_on, is_on, extra)
                for choice in [part.bound] if proven else part.choices:
                    used = step.used + choice.devices
                    memory = block.last_size(is_on) + choice.memory[1]
                    most_memory = max(step.memory + choice.memory[0], memory)
                    if used <= self.accelerators and most_memory <= self.limit:
                        latency = step.latency + choice.latency + block.last_time(is_on)
                        yield _Step(latency, used, is_on, memory, step, part, choice)

    def _part(self, number: int, first_on: bool, last_on: bool, extra: int) -> BlockPart:
        key = number, first_on, last_on, extra
        if key not in self._parts:
            self._parts[key] = BlockPart(self.blocks[number], first_on, last_on, extra)
        return self._parts[key]


def _undominated(steps: Iterable[_Step], *, proven: bool) -> list[_Step]:
    """The steps of which no other one is as fast with as few accelerators and as little memory.

    At most about ``_MOST``: of more, bounds have one that is as good as any of the rest.
    """
    best: list[_Step] = []
    least: dict[tuple[bool, int], float] = {}  # memory of the best ones, by accelerators
    for step in sorted(steps, key=lambda step: (step.latency, step.used, step.memory)):
        others = (least.get((step.is_on, used), math.inf) for used in range(step.used + 1))
        if step.memory < min(others):
            least[step.is_on, step.used] = step.memory
            best.append(step)
    best, rest = best[:_MOST], best[_MOST:]
    for is_on in (False, True) if proven else ():
        alike = [step for step in rest if step.is_on == is_on]
        if alike:
            used, memory = min(s.used for s in alike), min(s.memory for s in alike)
            best.append(alike[0]._replace(used=used, memory=memory))
    return best
