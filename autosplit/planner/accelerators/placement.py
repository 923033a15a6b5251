"""A placement of ops on accelerators and a CPU, and what it costs.

An accelerator begins when all that its ops read is there, takes its load (see ``cost_model``), and
is done with all of them at once; no result of its ops may come back to it. An op on the CPU begins
when what it reads is there, whatever else runs there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autosplit.cuts import bitset, contract, members
from autosplit.errors import SplitError
from autosplit.planner.batch.evaluation import BatchEvaluator
from autosplit.planner.problem.cost_model import CostModel

SAME = 1e-6  # latencies nearer than this, relative, count as equal: solvers round as much


@dataclass(frozen=True)
class Placement:
    """The ops of each accelerator and of the CPU, and what an item takes.

    ``loads`` and ``memory``: of the accelerators; ``lower_bound``: no placement has less latency.
    """

    accelerators: tuple[tuple[int, ...], ...]
    cpu: tuple[int, ...]
    loads: tuple[float, ...]
    memory: tuple[float, ...]
    latency: float
    lower_bound: float = 0.0
    optimal: bool = False


def evaluate_placement(
    costs: CostModel, cpu_times: Sequence[float], accelerators: Sequence[Iterable[int]]
) -> Placement:
    """What a placement costs; ops on no accelerator are on the CPU. Memory limits do not raise.

    Raises:
        SplitError: An accelerator would wait for a result of its own.
    """
    stages = [tuple(sorted(ops)) for ops in accelerators]
    table = BatchEvaluator[object](costs).table(list(enumerate(stages)))
    loads = dict(zip(map(bitset, stages), table.loads(costs).tolist(), strict=True))
    contraction = contract(costs.predecessors, loads)
    done: list[float] = []
    on_cpu: list[int] = []
    for ops, producers in zip(contraction.groups, contraction.predecessors, strict=True):
        start = max((done[p] for p in members(producers)), default=0.0)
        if ops not in loads and ops.bit_count() > 1:
            names = ", ".join(costs.names[op] for op in members(ops))
            raise SplitError(f"ops {names} wait for each other; leave them on one accelerator")
        if ops not in loads:
            on_cpu += members(ops)
        done.append(start + (loads[ops] if ops in loads else cpu_times[on_cpu[-1]]))
    memory = tuple(table.memory.tolist())
    times = tuple(loads[bitset(ops)] for ops in stages)
    return Placement(tuple(stages), tuple(sorted(on_cpu)), times, memory, max(done, default=0.0))
