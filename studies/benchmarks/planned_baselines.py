"""The rules by which other programs split a model, as plans along its own order of ops.

``compare_on_clusters`` tries them on clusters of unlike devices. Nothing is timed: periods are
those of the planner's cost model.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import numpy as np

from autosplit.cuts import members
from autosplit.cuts.stages import stages_between
from autosplit.deployment import Option, Stage
from autosplit.errors import Infeasible
from autosplit.planner import CostModel, Kind, Plan, Question, Row, evaluate, fits, partition
from autosplit.planner.cut_set import to_words
from autosplit.planner.moves import spread_places
from autosplit.planner.problem import problems
from studies.benchmarks.result import at_most, finish, percentile

ALONG = "best split, devices in this order"
GAP = 1e-6  # relative difference of two periods that are equal
SECONDS = 20.0  # of the processor, for one plan
_SPARE = 1.2  # the memory that a part of a model takes, as a multiple of its weights
# Weights of the groups of ops, the share of each device in them, and the devices in their order.
Rule = tuple[Sequence[float], Sequence[float], Sequence[int]]


def planned_or_none(costs: CostModel, question: Question, **options: Any) -> Plan | None:
    """The best plan, None where nothing fits; ``options`` of ``partition``."""
    try:
        return partition(costs, question, **options)
    except Infeasible:
        return None


def planned_baselines(costs: CostModel, stages: int) -> dict[str, Plan | None]:
    """The split of each rule on devices of the only kind of the costs; None if it does not fit.

    ``ops``, ``params`` and ``FLOPs`` give stages equal shares of these. ``1 order`` is the best
    split along the model's own order of ops: no rule that cuts this order, such as torchgpipe's
    block partition or Coral's bisection, is better. Each rule keeps groups of ops together.
    """
    question = Question.of_split(stages, costs.kinds[0].name)
    (problem,) = problems(costs, question)
    order = to_words([(1 << place) - 1 for place in range(problem.size + 1)], problem.size)
    equal, devices = [1.0] * stages, [0] * stages
    rules = {
        "ops": ([float(ops.bit_count()) for ops in costs.contraction.groups], equal, devices),
        "params": (_sums(costs, costs.sizes), equal, devices),
        "FLOPs": (_sums(costs, costs.flops), equal, devices),
    }
    fitting = {name: plan for name, plan in _plans(costs, rules).items() if fits(costs, plan)}
    best = planned_or_none(costs, question, cuts={problem.batch: order})
    return dict.fromkeys(rules) | fitting | {"1 order": best}


def unlike_baselines(costs: CostModel, speeds: Sequence[float]) -> dict[str, Plan]:
    """The plans of other programs' rules for unlike devices, by rule: a range of ops per device.

    Device i has row and kind i of the costs, and speed i. The ranges follow the order of the
    devices, or the largest memory comes first. The rules ignore limits: a plan may exceed them.
    OpenVINO's HETERO fills one device after another.
    """
    counts = [float(ops.bit_count()) for ops in costs.contraction.groups]
    memory = [kind.memory for kind in costs.kinds]
    sizes = _sums(costs, costs.sizes)
    filled = _filled(memory, sum(sizes))
    equal, in_order = [1.0] * len(speeds), list(range(len(speeds)))
    largest_first = sorted(in_order, key=lambda device: -memory[device])
    rules = {
        "equal layer counts": (counts, equal, in_order),
        "equal parameters": (sizes, equal, in_order),
        "layers by memory": (counts, memory, in_order),
        "layers by memory, largest first": (counts, memory, largest_first),
        "memory filled in order": (sizes, filled, in_order[: len(filled)]),
        "layers by speed": (counts, speeds, in_order),
    }
    return _plans(costs, rules)


def _filled(memory: Sequence[float], size: float) -> list[float]:
    """The parts of a model of some size that fill the devices in order, with a fifth to spare.

    The last part is the rest; unneeded devices are left out, as in OpenVINO's PIPELINE_PARALLEL.
    """
    parts: list[float] = []
    for room in memory[:-1]:
        left = size - sum(parts)
        if room >= _SPARE * left:
            return [*parts, left]
        parts.append(room / _SPARE)
    return [*parts, size - sum(parts)]


def _sums(costs: CostModel, values: Sequence[float]) -> list[float]:
    return [sum(values[op] for op in members(ops)) for ops in costs.contraction.groups]


def _plans(costs: CostModel, rules: Mapping[str, Rule]) -> dict[str, Plan]:
    """The plan of each rule, unless its weights are 0: a nonempty range of groups per device."""
    plans = {}
    for name, (weights, shares, devices) in rules.items():
        if not sum(weights):
            continue
        # Cut where the running sum of weights is nearest to the shares.
        running = np.cumsum([0.0, *weights])
        of_devices = [shares[device] for device in devices]
        ends = running[-1] * np.cumsum(of_devices)[:-1] / sum(of_devices)
        places = [int(np.abs(running - end).argmin()) for end in ends]
        spread = spread_places(places, len(weights))
        cuts = [costs.contraction.expand((1 << place) - 1) for place in spread]
        pairs = zip(stages_between(costs, cuts), devices, strict=True)
        stages = [Stage(ops, (Option(costs.rows[device].row),)) for ops, device in pairs]
        plans[name] = evaluate(costs, stages)
    return plans


def compare_on_clusters(graphs: Sequence[CostModel], number: int, file: Path | None) -> int:
    """The table of ``number`` clusters: the period of each rule as a multiple of the plan's."""
    ratios: dict[str, list[float]] = {}
    unproven = without_plan = 0
    for seed in range(number):
        costs, speeds = cluster(graphs[seed % len(graphs)], seed)
        question = Question(dict.fromkeys(costs.kind_index, 1))
        best = planned_or_none(costs, question, deadline=is_over(SECONDS))
        if best is None:
            without_plan += 1
            continue
        unproven += not best.optimal
        rules: dict[str, Plan | None] = {**unlike_baselines(costs, speeds)}
        rules[ALONG] = planned_or_none(costs, Question.along(tuple(costs.kind_index)))
        for rule, plan in rules.items():
            ratio = plan.period / best.period if plan and fits(costs, plan) else math.inf
            ratios.setdefault(rule, []).append(ratio)
    least = min(map(min, ratios.values()))
    bars = [
        at_most("plans without a proof", unproven, 0),
        at_most("largest loss against a rule, %", 100 * (1 - min(1.0, least)), 100 * GAP),
    ]
    notes = [
        "median, 90th percentile, worst: the period as a multiple of that of the best plan, on the "
        "clusters where the rule keeps all memory limits",
        f"{without_plan} of {number} clusters have no split that fits, and are left out",
    ]
    rows = [row(rule, values) for rule, values in ratios.items()]
    return finish("clusters", rows, notes=notes, bars=bars, file=file)


def is_over(seconds: float) -> Callable[[], bool]:
    """A function that says whether this process has used so much CPU time since this call."""
    end = time.process_time() + seconds
    return lambda: time.process_time() > end


def row(rule: str, ratios: Sequence[float]) -> dict[str, object]:
    """A rule in the table; its ratios are infinite where it exceeds a limit."""
    kept = [ratio for ratio in ratios if ratio < math.inf]
    return {
        "rule": rule,
        "clusters": len(ratios),
        "exceeds a memory limit": len(ratios) - len(kept),
        "median": median(kept) if kept else None,
        "90th percentile": percentile(kept) if kept else None,
        "worst": max(kept, default=None),
    }


def cluster(graph: CostModel, seed: int) -> tuple[CostModel, list[float]]:
    """A graph on 2 to 6 unlike devices, and their speeds; device i is row and kind i of the costs.

    The fastest is up to 8 times as fast as the slowest. A link takes a quarter of the time that
    the graph says to four times as long. Memories are up to 4 times apart, and together
    1.2 to 3 times what the graph needs.
    """
    random = Random(seed)
    count = random.randint(2, 6)
    speeds = [8 ** random.random() for _ in range(count)]
    links = [16 ** random.random() / 4 for _ in range(count)]
    parts = [4 ** random.random() for _ in range(count)]
    room = random.uniform(1.2, 3) * sum(graph.sizes)
    only, moves = graph.rows[0], graph.kinds[0].send
    rows, kinds = [], []
    for n in range(count):
        times = tuple(op_time / speeds[n] for op_time in only.times)
        rows.append(replace(only, row=Row(str(n)), times=times))
        moved = tuple(cost * links[n] for cost in moves)
        kinds.append(Kind(str(n), moved, moved, room * parts[n] / sum(parts)))
    return replace(graph, rows=tuple(rows), kinds=tuple(kinds)), speeds
