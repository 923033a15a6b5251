"""The integer program of the least latency on accelerators and a CPU.

It is that of Tarnawski et al., Efficient Algorithms for Device Placement of DNN Graph Operators,
NeurIPS 2020, with two kinds of rows more, without which a solver finds no bound: ``_order`` and
``_paths``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from autosplit.cuts import members
from autosplit.planner.accelerators.placement import SAME
from autosplit.planner.problem.cost_model import CostModel
from autosplit.planner.problem.runtime_costs import disjoint, of_device

Terms = Iterable[tuple[int, float]]  # variables and their coefficients


@dataclass
class IntegerProgram:
    """Minimise the last variable, so that in each row ``low <= sum of terms <= high``.

    ``bounds`` and ``integer`` are those of the variables, ``rows`` are terms, low and high.
    """

    bounds: list[tuple[float, float]] = field(default_factory=list)
    integer: list[bool] = field(default_factory=list)
    rows: list[tuple[Mapping[int, float], float, float]] = field(default_factory=list)

    def variable(self, low: float = 0.0, high: float = 1.0, *, integer: bool = False) -> int:
        """A new variable."""
        self.bounds.append((low, high))
        self.integer.append(integer)
        return len(self.bounds) - 1

    def require(self, terms: Terms, low: float = -math.inf, high: float = math.inf) -> None:
        """A new row; a variable may stand in several terms."""
        row: dict[int, float] = {}
        for variable, coefficient in terms:
            row[variable] = row.get(variable, 0.0) + coefficient
        self.rows.append((row, low, high))

    def at_least(self, variable: int, terms: Terms, constant: float = 0.0) -> None:
        """A row: the variable is at least the sum of the terms and a constant."""
        self.require([(variable, 1.0), *((v, -c) for v, c in terms)], low=constant)


class PlacementProgram:
    """The integer program of a placement with a latency of at most ``longest``."""

    def __init__(
        self, costs: CostModel, cpu_times: Sequence[float], accelerators: int, longest: float
    ) -> None:
        self.costs, self.cpu_times, self.devices = costs, cpu_times, range(accelerators)
        self.longest, self.program = longest * (1 + SAME), IntegerProgram()
        ops = range(len(costs.names))
        unit_of = {op: unit for unit in disjoint(costs.groups) for op in members(unit)}
        # Per group of ops that stay together: the variables of whether each accelerator has it.
        chosen = {unit_of.get(op, 1 << op): list[int]() for op in ops}
        for unit, row in chosen.items():
            row += [self._choice(unit, device) for device in self.devices]
            self.program.require([(x, 1.0) for x in row], high=1.0)
        self.on = [chosen[unit_of.get(op, 1 << op)] for op in ops]
        # When the results of each op are there, and the time along any path to it.
        self.done, self.path = self._times(), self._times()
        for device in self.devices:
            self._accelerator(device)
        self._cpu()
        self._paths()
        if costs.devices is None:
            self._order(list(chosen.values()))
        latency = self.program.variable(0.0, self.longest)
        for done in self.done:
            self.program.at_least(latency, [(done, 1.0)])

    @property
    def longest_path(self) -> float:
        """A bound of the latency: the longest path with each op where it is fastest."""
        return max(self.program.bounds[time][0] for time in self.path)

    def placement(self, values: Sequence[float]) -> list[list[int]]:
        """The ops of each accelerator in a solution."""
        rows = list(enumerate(self.on))
        return [[op for op, row in rows if values[row[d]] > 0.5] for d in self.devices]

    def _choice(self, unit: int, device: int) -> int:
        times = of_device(self.costs.times, device)
        possible = all(times[op] < math.inf for op in members(unit))
        return self.program.variable(high=float(possible), integer=True)

    def _times(self) -> list[int]:
        """A time for each op, at least that of a path on which each op is where it is fastest."""
        rows = [of_device(self.costs.times, device) for device in self.devices]
        least: list[float] = []
        for op, producers in enumerate(self.costs.predecessors):
            before = max((least[p] for p in members(producers)), default=0.0)
            least.append(before + min(self.cpu_times[op], *(row[op] for row in rows)))
        return [self.program.variable(time, self.longest) for time in least]

    def _cpu(self) -> None:
        """On the CPU an op is done its time after what it reads, elsewhere never before it."""
        for op, producers in enumerate(self.costs.predecessors):
            time = self.cpu_times[op]
            elsewhere = [(x, -time) for x in self.on[op]]
            for p in members(producers):
                terms = [(self.done[p], 1.0), *elsewhere]
                self.program.at_least(self.done[op], terms, time)
            self.program.at_least(self.done[op], [(self.path[op], 1.0)])

    def _accelerator(self, device: int) -> None:
        """The rows of an accelerator: its load, its memory, and when it starts and is done."""
        program, costs, times = self.program, self.costs, of_device(self.costs.times, device)
        start, finish = (program.variable(0.0, self.longest) for _ in range(2))
        used = program.variable()
        load, memory = [(used, of_device(costs.overheads, device))], []
        for op, row in enumerate(self.on):
            x = row[device]
            program.at_least(used, [(x, 1.0)])
            memory.append((x, costs.sizes[op]))
            load.append((x, times[op] if times[op] < math.inf else 0.0))
            # Its results are there when all of the accelerator is done.
            self._if(x, self.done[op], finish)
        send, receive = of_device(costs.send, device), of_device(costs.receive, device)
        for t, tensor in enumerate(costs.tensors):
            received, sent = program.variable(), program.variable()
            producer = tensor.producer
            source = [] if producer is None else [(self.on[producer][device], 1.0)]
            for reader in tensor.consumers:
                x = self.on[reader][device]
                program.at_least(received, [(x, 1.0), *((m, -1.0) for m, _ in source)])
                if source:
                    program.at_least(sent, [*source, (x, -1.0)])
            if producer is not None:
                # It starts when what it receives is there.
                self._if(received, start, self.done[producer])
            load += [(received, receive[t]), (sent, send[t])]
            if costs.activations:
                memory += [(received, tensor.bytes), (sent, tensor.bytes)]
        program.at_least(finish, [(start, 1.0), *load])
        limit = of_device(costs.memory, device)
        if limit < math.inf:
            # Bytes are large numbers beside 0 and 1, on which solvers lose precision.
            unit = limit or 1.0
            scaled = [(variable, size / unit) for variable, size in memory]
            program.require(scaled, high=limit / unit * (1 + 1e-12))
        self._keep_contiguous(device)

    def _if(self, condition: int, later: int, earlier: int) -> None:
        """A row: one time is not before another, if a variable is 1."""
        terms = [(earlier, 1.0), (condition, self.longest)]
        self.program.at_least(later, terms, -self.longest)

    def _keep_contiguous(self, device: int) -> None:
        """The ops of an accelerator form a convex set: no path leaves it and returns.

        Each op has a variable: 1 if the op or an op that depends on it is on the accelerator, 0 if
        the op is not on it but reads from one that is.
        """
        needed = [self.program.variable() for _ in self.on]
        for op, producers in enumerate(self.costs.predecessors):
            x = self.on[op][device]
            self.program.at_least(needed[op], [(x, 1.0)])
            for p in members(producers):
                self.program.at_least(needed[p], [(needed[op], 1.0)])
                behind = [(needed[op], 1.0), (x, -1.0), (self.on[p][device], 1.0)]
                self.program.require(behind, high=1.0)

    def _order(self, chosen: Sequence[Sequence[int]]) -> None:
        """An accelerator has no op before the first one of the accelerator before it.

        So of placements that differ in the order of equal accelerators only one remains.
        """
        for device in self.devices[1:]:
            for place, row in enumerate(chosen):
                earlier = [(other[device - 1], 1.0) for other in chosen[:place]]
                self.program.require([*earlier, (row[device], -1.0)], low=0.0)

    def _paths(self) -> None:
        """The time along a path counts its ops and the transfers that it needs.

        Whole numbers need no such rows. Where ops are on a device in part, as a solver has them at
        first, the conditions of the other rows mean little, and these do not.
        """
        program, costs = self.program, self.costs
        for op, producers in enumerate(costs.predecessors):
            time, row = self.cpu_times[op], []
            for device, x in enumerate(self.on[op]):
                here = of_device(costs.times, device)[op]
                row.append((x, here - time if here < math.inf else 0.0))
            program.at_least(self.path[op], row, time)
            for p in members(producers):
                terms = [(self.path[p], 1.0), *row, *self._crossings(p, op)]
                program.at_least(self.path[op], terms, time)

    def _crossings(self, producer: int, reader: int) -> Terms:
        """The cost of the tensors between two ops, for each accelerator that only one is on."""
        between = []
        for t, tensor in enumerate(self.costs.tensors):
            if tensor.producer == producer and reader in tensor.consumers:
                between.append(t)
        for device, (x, y) in enumerate(zip(self.on[producer], self.on[reader], strict=True)):
            tables = (x, y, self.costs.send), (y, x, self.costs.receive)
            for inside, outside, table in tables:
                price = math.fsum(of_device(table, device)[t] for t in between)
                if price:
                    crosses = self.program.variable()
                    self.program.at_least(crosses, [(inside, 1.0), (outside, -1.0)])
                    yield crosses, price
