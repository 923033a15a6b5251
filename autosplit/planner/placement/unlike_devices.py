"""Replicas on devices that differ: which of them each stage gets.

The replicas of a stage take items from one queue, the first free one the oldest item, so their
rates add up: a stage whose load is L_k on a device of kind k has the period 1 / sum(n_k / L_k) on
n_k devices of each kind. One with states, of which a replica holds whole streams, waits for the
slowest replica. With D[I, q] the least period of the ops of a downset I on q, a number of
devices of each kind,
    D[I, q] = min over downsets I' inside I and numbers n with 0 < n <= q
              of max(D[I', q - n], the period of I - I' on n).
Stages need not follow the order of the devices.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from autosplit.cuts import TooManyDownsets
from autosplit.cuts.stages import Stages
from autosplit.planner.exact.downset_table import Words, list_rows, ops_between
from autosplit.planner.exact.stage_loads import Side, load_table
from autosplit.planner.placement.deployments import states_before
from autosplit.planner.placement.device_order import kinds_of
from autosplit.planner.problem.constraints import FREE
from autosplit.planner.problem.cost_model import CostModel
from autosplit.planner.problem.deployment import sharing
from autosplit.planner.problem.problem import Array, Index, Problem, pose
from autosplit.planner.problem.scaling import ScaledProblem, scale

_MOST_CUTS = 2_000
_MOST_STEPS = 500_000_000  # pairs of cuts, for each pair of numbers of devices

Numbers = tuple[int, ...]  # of devices of each kind


@dataclass(frozen=True)
class DevicePlan:
    """Stages, the places of the devices of their replicas, and their runtimes where some compete.

    ``loads``: the period of each stage alone, the largest of which is ``period``.
    """

    stages: Stages
    devices: tuple[tuple[int, ...], ...]
    runtimes: tuple[str, ...]
    loads: tuple[float, ...]
    period: float


def plan_devices(costs: CostModel, count: int) -> DevicePlan | None:
    """The stages of least period on ``count`` devices, then of fewest devices.

    Memory limits are those of each device. None where nothing fits, or where there are too many
    cuts and kinds of devices to look at all.
    """
    kinds = kinds_of(costs, count)
    firsts = sorted(set(kinds))
    every = tuple(map(kinds.count, firsts))
    problem = pose(costs.on_devices(firsts), len(firsts), FREE, allow_empty=True)
    try:
        words = list_rows(problem.contraction.predecessors, _MOST_CUTS)
    except TooManyDownsets:
        return None
    numbers = list(product(*(range(most + 1) for most in every)))
    if (len(words) * len(numbers)) ** 2 > _MOST_STEPS:
        return None
    # The empty cut is the first and the full one the last.
    words = words[np.argsort(Side(scale(problem, math.inf), words, 0).count, kind="stable")]
    before = states_before(problem, words)
    has_state = before > before[:, None]
    rates = _rates(problem, words)

    def each_runtime(used: Numbers) -> list[Array]:
        return [_together(kinds, used, has_state, costs.streams) for kinds in rates]

    options = {used: np.minimum.reduce(each_runtime(used)) for used in numbers[1:]}
    chosen = least_path(options, numbers)
    if not chosen:
        return None
    free = {first: [d for d in range(count) if kinds[d] == first] for first in firsts}
    stages, devices, runtimes, loads = [], [], [], []
    for start, end, used in chosen:
        stages.append(ops_between(problem, words[start], words[end]))
        places = []
        for first, number in zip(firsts, used, strict=True):
            places += [free[first].pop(0) for _ in range(number)]
        devices.append(tuple(sorted(places)))
        each = [float(periods[start, end]) for periods in each_runtime(used)]
        loads.append(min(each))
        runtimes.append(costs.each_runtime[each.index(min(each))].name)
    names = tuple(runtimes) if costs.runtimes else ()
    return DevicePlan(tuple(stages), tuple(devices), names, tuple(loads), max(loads))


def _rates(problem: Problem, words: Words) -> list[list[Array]]:
    """For each runtime and kind of device the items a time of every stage; 0 where it cannot run.

    A stage has one runtime, whatever devices its replicas are on.
    """
    scaled, rates = scale(problem, math.inf), []
    for number, tables in enumerate(scaled.runtimes):
        alone = replace(problem, runtimes=problem.runtimes[number : number + 1])
        one = replace(scaled, problem=alone, runtimes=(tables,))
        loads = [loads_between(one, words, kind) for kind in range(problem.stages)]
        with np.errstate(divide="ignore"):
            rates.append([np.divide(1.0, load) for load in loads])
    return rates


def loads_between(scaled: ScaledProblem, words: Words, device: int) -> Array:
    """The load of every stage, cut before by cut after, infinite for none or unsupported ops."""
    loads = load_table(scaled, words, device)
    loads[loads > scaled.top] = math.inf  # an op that cannot run counts as more than all
    np.fill_diagonal(loads, math.inf)  # a stage has an op
    return loads


def _together(
    rates: Sequence[Array], used: Numbers, has_state: NDArray[np.bool_], streams: int
) -> Array:
    """The period of every stage on some devices, infinite where one of them cannot run it."""
    pairs = [(rate, number) for rate, number in zip(rates, used, strict=True) if number]
    together = np.sum([number * rate for rate, number in pairs], axis=0)
    slowest = np.min([rate for rate, _ in pairs], axis=0)
    of_streams = slowest * sharing(sum(used), streams, True)
    together = np.where(has_state, of_streams, together)
    with np.errstate(divide="ignore"):
        return np.where(slowest > 0, np.divide(1.0, together), math.inf)


def least_path(
    options: Mapping[Numbers, Array], numbers: Sequence[Numbers]
) -> list[tuple[int, int, Numbers]]:
    """The cuts before and after each stage of the best plan and its devices; none without.

    ``options``: the period of every stage, cut before by cut after, for the devices that a stage
    may have; ``numbers``: those that all stages may have together, in lexicographic order.
    """
    rows = len(next(iter(options.values())))
    start = np.full(rows, math.inf)
    start[0] = 0.0
    least: dict[Numbers, Array] = {numbers[0]: start}
    parents: dict[Numbers, list[tuple[Index, Numbers]]] = {}
    for total in numbers[1:]:
        steps = []
        for used, stage_periods in options.items():
            rest = tuple(map(int.__sub__, total, used))
            if min(rest) >= 0:  # it came before
                path = np.maximum(least[rest][:, None], stage_periods)
                steps.append((path.min(axis=0), path.argmin(axis=0), used))
        periods = np.stack([step[0] for step in steps])
        least[total] = periods.min(axis=0)
        parents[total] = [(steps[n][1], steps[n][2]) for n in periods.argmin(axis=0)]
    # Of equal periods that of fewest devices.
    total = min(numbers, key=lambda each: (least[each][-1], sum(each)))
    if least[total][-1] == math.inf:
        return []
    stages, end = [], rows - 1
    while end:
        starts, used = parents[total][end]
        stages.append((int(starts[end]), end, used))
        total, end = tuple(map(int.__sub__, total, used)), int(starts[end])
    return stages[::-1]
