"""Clusters of unlike devices, and what the rules of other programs make of them.

Nothing is timed: periods are those of the planner's cost model.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import median

from autosplit.planner import CostModel, Kind, Plan, Question, Row, fits
from studies.benchmarks.planned_baselines import planned_or_none, unlike_baselines
from studies.benchmarks.result import at_most, finish, percentile

ALONG = "best split, devices in this order"
GAP = 1e-6  # relative difference of two periods that are equal
SECONDS = 20.0  # of the processor, for one plan


def compare(graphs: Sequence[CostModel], number: int, file: Path | None) -> int:
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
        for rule, plan in plans(costs, speeds):
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
    """Says whether this process has had the processor for so many seconds from now on."""
    end = time.process_time() + seconds
    return lambda: time.process_time() > end


def plans(costs: CostModel, speeds: Sequence[float]) -> Iterator[tuple[str, Plan | None]]:
    """The rules, and the best that a stage on each device can do without another order."""
    yield from unlike_baselines(costs, speeds).items()
    yield ALONG, planned_or_none(costs, Question.along(tuple(costs.kind_index)))


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
