"""Stages, replicas and threads on cores of several kinds, such as large and small ones.

The replicas of a stage have cores of one kind. With D[I, q] the least period of the ops of a
downset I on q, a number of cores of each kind,
    D[I, q] = min over downsets I' inside I, kinds k and n <= q_k of their cores
              of max(D[I', q - n of k], the least L_w(I - I') / floor(n / w) over w threads),
where L_w is the load of a replica with w cores of that kind.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np

from autosplit.cuts import TooManyDownsets
from autosplit.errors import ConfigError, Infeasible
from autosplit.planner.exact.downset_table import Words, list_rows, ops_between
from autosplit.planner.exact.search import start_rows
from autosplit.planner.exact.stage_loads import Side
from autosplit.planner.placement.deployments import cores_bound, plan_deployment, states_before
from autosplit.planner.placement.unlike_devices import Numbers, least_path, loads_between
from autosplit.planner.problem.constraints import FREE
from autosplit.planner.problem.cost_model import CostModel
from autosplit.planner.problem.deployment import (
    MOST_WAYS,
    PlannedDeployment,
    evaluate_deployment,
    row_numbers,
    sharing,
    useful_replicas,
    ways_to_use,
)
from autosplit.planner.problem.problem import Array, Deadline, Index, Problem, pose
from autosplit.planner.problem.scaling import scale

_STEPS = 300_000_000  # pairs of cuts, for each number of cores of a stage and of all stages
_LISTED = 20_000  # cuts of which some are chosen
_ROUNDS = 4  # searches between some of the cuts, where all are too many


class _Shape(NamedTuple):
    """A row of the costs: a replica with so many cores of a kind."""

    row: int
    threads: int
    kind: int


def plan_cores(
    costs: CostModel,
    cores: Sequence[int],
    thread_counts: Sequence[int],
    *,
    fewest_threads: int = 1,
    deadline: Deadline | None = None,
    steps: int = _STEPS,
) -> PlannedDeployment:
    """The deployment of least period on ``cores[k]`` cores of each kind k, then of fewest cores.

    The rows of ``costs`` are as ``row_numbers`` has them for ``thread_counts``. Replicas have at
    least ``fewest_threads``. For one kind it is ``plan_deployment`` with this ``deadline``; for
    several the search between cuts takes about so many ``steps``, and ``optimal`` says whether
    these were all cuts.

    Raises:
        Infeasible: Nothing fits.
        ConfigError: There are too many cores of too many kinds.
    """
    shapes = []
    for (width, kind), row in row_numbers(tuple(thread_counts)).items():
        if fewest_threads <= width <= cores[kind]:
            shapes.append(_Shape(row, width, kind))
    rows, counts = [shape.row for shape in shapes], [shape.threads for shape in shapes]
    if not rows:
        raise Infeasible(f"no deployment of '{costs.name}' has so few cores; give more")
    if len(cores) == 1:
        model = costs.on_devices(rows)
        return plan_deployment(model, cores[0], thread_counts=counts, deadline=deadline)
    if ways_to_use(cores) > MOST_WAYS:
        raise ConfigError(
            f"{' + '.join(map(str, cores))} cores of {len(cores)} kinds are used in "
            f"{ways_to_use(cores)} ways, more than {MOST_WAYS}; use fewer cores or kinds"
        )
    numbers = list(product(*(range(most + 1) for most in cores)))
    problem = pose(costs.on_devices(rows), len(rows), FREE, allow_empty=True)
    most_cuts = max(3, math.isqrt(steps // (len(numbers) * sum(cores))))
    words, times, is_complete = _cuts(problem, most_cuts)
    best: PlannedDeployment | None = None
    chosen = np.linspace(0, len(words) - 1, min(len(words), most_cuts)).astype(np.intp)
    for _ in range(1 if is_complete else _ROUNDS):
        table = _Table(problem, words[chosen], cores, shapes)
        path = least_path(table.options, numbers)
        if not path:
            break
        stages, replicas, threads, used = zip(*map(table.stage, path), strict=True)
        plan = evaluate_deployment(costs, stages, replicas, threads, thread_counts, used)
        best = plan if best is None else min(best, plan, key=lambda each: each.period)
        # Where all cuts are too many, those near the ends of the stages come next.
        chosen = _near(times, chosen[[end for _, end, _ in path]], most_cuts)
    if best is None:
        raise Infeasible(
            f"no deployment of '{costs.name}' on {' + '.join(map(str, cores))} cores satisfies "
            "all conditions; give more memory or cores"
        )
    bound = best.period if is_complete else cores_bound(problem, sum(cores), counts)
    return replace(best, lower_bound=bound, optimal=is_complete)


def _cuts(problem: Problem, most: int) -> tuple[Words, Array, bool]:
    """Cuts from the empty to the full one, the times before them, and whether they are all."""
    try:
        words = list_rows(problem.contraction.predecessors, max(_LISTED, most))
    except TooManyDownsets:
        words, is_complete = start_rows(problem), False
    else:
        is_complete = len(words) <= most
    side = Side(scale(problem, math.inf), words, 0)
    # By time, so that every so-manieth cut has about as much between it and the next.
    order = np.lexsort((side.times[0], np.sign(side.count) + (side.count == problem.size)))
    return words[order], side.times[0][order], is_complete


class _Table:
    """The stages between some cuts, in every shape."""

    def __init__(
        self, problem: Problem, words: Words, cores: Sequence[int], shapes: Sequence[_Shape]
    ) -> None:
        self.problem, self.words = problem, words
        before = states_before(problem, words)
        self._has_state, self._streams = before > before[:, None], problem.costs.streams
        scaled = scale(problem, math.inf)
        self._loads = {
            shape: loads_between(scaled, words, place) for place, shape in enumerate(shapes)
        }
        self.options: dict[Numbers, Array] = {}
        for kind, most in enumerate(cores):
            for number in range(1, most + 1):
                used = tuple(number if k == kind else 0 for k in range(len(cores)))
                # Where replicas have several threads, so few cores may be of no use.
                none = np.full((len(words), len(words)), math.inf)
                self.options[used] = np.minimum.reduce([none, *self._periods(used).values()])

    def _periods(self, used: Numbers) -> dict[_Shape, Array]:
        """The period of every stage on some cores of one kind, by its shape."""
        kind, number = next((k, n) for k, n in enumerate(used) if n)
        periods = {}
        for shape, loads in self._loads.items():
            if shape.kind == kind and shape.threads <= number:
                copies = number // shape.threads
                periods[shape] = loads / sharing(copies, self._streams, self._has_state)
        return periods

    def stage(self, step: tuple[int, int, Numbers]) -> tuple[tuple[int, ...], int, int, int]:
        """The ops, replicas, threads and kind of a stage of a path."""
        start, end, used = step
        periods = {shape: each[start, end] for shape, each in self._periods(used).items()}
        shape = min(periods, key=lambda each: periods[each])
        replicas = sum(used) // shape.threads
        if self._has_state[start, end]:
            replicas = useful_replicas(replicas, self._streams)
        ops = ops_between(self.problem, self.words[start], self.words[end])
        return ops, replicas, shape.threads, shape.kind


def _near(times: Array, cuts: Index, most: int) -> Index:
    """The cuts nearest in time to some of them, and the first and the last."""
    distance = np.abs(times[:, None] - times[cuts]).min(axis=1)
    distance[[0, -1]] = -1.0
    return np.sort(np.argsort(distance, kind="stable")[:most])
