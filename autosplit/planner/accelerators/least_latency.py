"""The least latency of one item on accelerators that hold little, and a CPU beside them.

Each op runs on the CPU or on one of k accelerators (see ``accelerator_placement``). The caller has
a solver for integer programs. Where accelerators are alike, it first solves parts of the graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TypeVar

from autosplit.errors import ConfigError, Infeasible, SplitError
from autosplit.planner.accelerators.block_path import improve_blocks
from autosplit.planner.accelerators.integer_program import IntegerProgram, PlacementProgram
from autosplit.planner.accelerators.placement import SAME, Placement, evaluate_placement
from autosplit.planner.problem.cost_model import CostModel
from autosplit.planner.problem.problem import Deadline
from autosplit.planner.problem.runtime_costs import of_device
from autosplit.planner.solve import least_latency

_T = TypeVar("_T")
# Of a program, and the share of the solver's time that it may take: the values of the variables,
# None without a solution, and a bound of the last one. None if no time is left.
Solve = Callable[[IntegerProgram, float], tuple[Sequence[float] | None, float] | None]
_PART = 1 / 8  # of the solver's time for one part of a graph


def least_latency_placement(
    costs: CostModel,
    cpu_times: Sequence[float],
    accelerators: int,
    solve: Solve,
    deadline: Deadline | None = None,
) -> Placement:
    """The placement of least latency; ``optimal`` where that is proven.

    ``costs``: of the accelerators, with their memory; ``cpu_times``: of each op. Groups of ops stay
    on one accelerator or on the CPU.

    Raises:
        ConfigError: The costs are of another number of accelerators.
    """
    if accelerators < 1 or costs.devices not in (None, accelerators):
        remedy = f"there are costs of {costs.devices}" if costs.devices else "give at least 1"
        raise ConfigError(f"the number of accelerators is {accelerators}; {remedy}")

    pipelines = _pipelines(costs, cpu_times, accelerators, deadline)
    best = min(pipelines, key=lambda placement: placement.latency)
    if costs.devices is None:
        best = improve_blocks(costs, cpu_times, best, partial(improve_by_program, solve, _PART))
    if best.optimal:
        return best
    return improve_by_program(solve, 1.0, costs, cpu_times, best) or best


def _pipelines(
    costs: CostModel, cpu_times: Sequence[float], accelerators: int, deadline: Deadline | None
) -> Iterator[Placement]:
    """Placements whose stages come one after the other.

    All on the CPU, all on accelerators, and with stages on the CPU between those on accelerators.
    """
    yield evaluate_placement(costs, cpu_times, [()] * accelerators)
    stages = _pipeline(costs, accelerators, deadline)
    if stages:
        yield evaluate_placement(costs, cpu_times, stages)
    if deadline is not None and deadline():
        return
    mixed = _with_cpu_between(costs, cpu_times, accelerators)
    stages = _pipeline(mixed, 2 * accelerators + 1, deadline)
    if stages:
        yield evaluate_placement(costs, cpu_times, stages[1::2])


def _pipeline(
    costs: CostModel, stages: int, deadline: Deadline | None
) -> tuple[tuple[int, ...], ...]:
    """The ops of the stages of least latency; empty where no split fits."""
    try:
        plan = least_latency(costs, stages, math.inf, deadline=deadline, allow_empty=True)
    except Infeasible:
        return ()
    return plan.stages


def _with_cpu_between(costs: CostModel, cpu_times: Sequence[float], accelerators: int) -> CostModel:
    """The costs of a pipeline whose stages are on the CPU and on an accelerator in turn."""

    def in_turn(table: Sequence[_T], of_cpu: _T) -> tuple[_T, ...]:
        pairs = ((of_cpu, of_device(table, device)) for device in range(accelerators))
        return (*chain.from_iterable(pairs), of_cpu)

    free = (0.0,) * len(costs.tensors)
    return replace(
        costs,
        times=in_turn(costs.times, tuple(cpu_times)),
        send=in_turn(costs.send, free),
        receive=in_turn(costs.receive, free),
        overheads=in_turn(costs.overheads, 0.0),
        memory=in_turn(costs.memory, math.inf),
        runtimes=(),
    )


def improve_by_program(
    solve: Solve, share: float, costs: CostModel, cpu_times: Sequence[float], best: Placement
) -> Placement | None:
    """``best`` or the placement that a solver finds, with a bound; None if it has no time left."""
    model = PlacementProgram(costs, cpu_times, len(best.accelerators), best.latency)
    solution = solve(model.program, share)
    if solution is None:
        return None
    values, bound = solution
    bound = max(bound, model.longest_path, best.lower_bound)
    if values is not None:
        try:
            planned = evaluate_placement(costs, cpu_times, model.placement(values))
            best = min(best, planned, key=lambda placement: placement.latency)
        except SplitError:
            pass  # in the program, accelerators without any load may wait for each other
    optimal = best.latency <= bound * (1 + SAME)
    return replace(best, lower_bound=min(bound, best.latency), optimal=optimal)
