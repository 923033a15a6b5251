"""The blocks of a graph between its serial ops, and what placing one of them takes at least.

An op is serial if every other op comes before or after it. An accelerator with a serial op works
alone: all other ops are done before it begins, or begin after it is done. So the latency of a
placement is a sum over the blocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

from autosplit.cuts import closures, full, members, successors
from autosplit.planner.problem.cost_model import CostModel


def serial_blocks(costs: CostModel, cpu_times: Sequence[float]) -> list[Block]:
    """All blocks, in order; ``costs`` are of accelerators that are alike.

    Serial ops between two ops of a group do not count.
    """
    below = closures(costs.predecessors)
    above = _above(costs.predecessors)
    serial: list[int] = []
    for op in range(len(below)):
        is_serial = below[op] | above[op] == full(costs)
        if is_serial and all(not g & ~below[op] or not g & ~above[op] for g in costs.groups):
            serial.append(op)
    blocks = []
    for first, last in pairwise([None, *serial, None]):
        after = full(costs) if first is None else above[first] ^ 1 << first
        before = full(costs) if last is None else below[last] ^ 1 << last
        inner = tuple(members(after & before))
        blocks.append(Block(costs, cpu_times, first, inner, last, below))
    return blocks


def _above(predecessors: Sequence[int]) -> list[int]:
    """For each op the bitset of the ops that need it, and of itself."""
    above = [1 << op for op in range(len(predecessors))]
    for op, readers in reversed(list(enumerate(successors(predecessors)))):
        for reader in readers:
            above[op] |= above[reader]
    return above


class Block:
    """The ops between two serial ops; None stands for an end of the graph.

    ``time`` and ``size``: what the inner ops and the last one add to an accelerator with the first.
    """

    def __init__(
        self,
        costs: CostModel,
        cpu_times: Sequence[float],
        first: int | None,
        inner: tuple[int, ...],
        last: int | None,
        below: Sequence[int],
    ) -> None:
        self.costs, self.cpu_times, self.below = costs, cpu_times, below
        self.first, self.inner, self.last = first, inner, last
        self.ops = [op for op in (first, *inner, last) if op is not None]
        added = inner if last is None else (*inner, last)
        self.time = math.fsum(costs.times[0][op] for op in added)
        self.size = math.fsum(costs.sizes[op] for op in added)

    def last_time(self, last_on: bool) -> float:
        """The time of the last op, and of starting its accelerator."""
        if self.last is None:
            return 0.0
        if last_on:
            return self.costs.times[0][self.last] + self.costs.overheads[0]
        return self.cpu_times[self.last]

    def last_size(self, last_on: bool) -> float:
        """What the last op takes of the memory of its accelerator."""
        return self.costs.sizes[self.last] if self.last is not None and last_on else 0.0

    def bound(self, extra: int) -> float:
        """A time that the inner ops take at least, if ``extra`` accelerators have no end.

        The accelerator of the first op works before these and the CPU, that of the last op after
        them. Either some op with at least a certain path is on the CPU, or all of those are on
        accelerators. And in any time the CPU can do at most one op of each chain.
        """
        at_once = max(1, extra)
        most, work = self._longest, 0.0
        for path, time in self._cpu_paths:
            work += time
            most = max(most, min(path, work / at_once))
        total = math.fsum(time for _, time in self._cpu_paths)
        return max(most, total / max(1.0, extra + self._cpu_rate))

    @cached_property
    def _around(self) -> dict[int, float]:
        """Per inner op the longest path of inner ops through it, without its own time."""
        costs = self.costs
        readers = successors(costs.predecessors)
        least = {op: min(costs.times[0][op], self.cpu_times[op]) for op in self.inner}
        before: dict[int, float] = {}
        after: dict[int, float] = {}
        for op in self.inner:
            producers = [p for p in members(costs.predecessors[op]) if p in before]
            before[op] = max((before[p] + least[p] for p in producers), default=0.0)
        for op in reversed(self.inner):
            after[op] = max((after[r] + least[r] for r in readers[op] if r in after), default=0.0)
        return {op: before[op] + after[op] for op in self.inner}

    @cached_property
    def _longest(self) -> float:
        """The longest path of inner ops, each where it is fastest."""
        times = self.costs.times[0]
        paths = (way + min(times[op], self.cpu_times[op]) for op, way in self._around.items())
        return max(paths, default=0.0)

    @cached_property
    def _cpu_paths(self) -> list[tuple[float, float]]:
        """Per inner op that an accelerator can run: the path through it on the CPU, and its time.

        From the longest path to the shortest.
        """
        times = self.costs.times[0]
        paths = [(way + self.cpu_times[op], times[op]) for op, way in self._around.items()]
        return sorted((pair for pair in paths if pair[1] < math.inf), reverse=True)

    @cached_property
    def _cpu_rate(self) -> float:
        """How many accelerators the CPU can stand for at most: so many chains cover the ops."""
        chains: list[int] = []  # the last op of each
        rate = 0.0
        for op in self.inner:
            time, cpu_time = self.costs.times[0][op], self.cpu_times[op]
            if 0 < time < math.inf:
                rate = max(rate, time / cpu_time if cpu_time else math.inf)
            earlier = [n for n, end in enumerate(chains) if self.below[op] >> end & 1]
            if earlier:
                chains[earlier[0]] = op
            else:
                chains.append(op)
        return len(chains) * rate if rate else 0.0
