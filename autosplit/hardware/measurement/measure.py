"""Measuring a pipeline: steady-state period, latency, busy time of each stage; fill and drain left out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from statistics import median

from autosplit.hardware.execution.event import StageEvent
from autosplit.hardware.execution.pipeline import Item, Pipeline
from autosplit.hardware.measurement.results import Spread, spread

MS = 1e3


@dataclass(frozen=True)
class Budget:
    """When a measurement ends: after ``seconds``, or once the period's interval is within ``share`` of its median.

    At least ``items`` results are timed in steady state, whatever it costs. ``latency_items`` are timed one by one.
    """

    seconds: float = 5.0
    share: float = 0.01
    items: int = 16
    latency_items: int = 3


def period_and_stages(
    pipeline: Pipeline,
    items: Sequence[Item],
    budget: Budget,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[Spread, tuple[float, ...]]:
    """Period and busy time of each stage, in ms, of a pipeline with ``trace``, over a stream that repeats ``items``.

    Results count from the moment the pipeline is full to the moment the last item went in.
    """
    stages = len(pipeline.wiring.stages)
    stream = cycle(items)
    first = len(pipeline.submitted)
    inside = max(
        2 * stages, 2
    )  # enough that no stage waits for the caller, few enough to fill soon
    warm = first + inside + stages
    for _ in range(inside):
        pipeline.submit(next(stream))
    results = pipeline.results()
    deadline = clock() + budget.seconds
    taken = first
    while True:
        next(results)
        taken += 1
        steady = taken - warm
        if steady >= budget.items and (
            clock() > deadline or _settled(pipeline.events, warm, taken, stages, budget)
        ):
            break
        pipeline.submit(next(stream))
    last = taken
    for _ in range(inside - 1):
        next(results)
    ends = completions(pipeline.events, warm - 1, last)
    busy = tuple(_busy(pipeline.events, s, warm, last) for s in range(stages))
    return spread(gaps(ends)), busy


def latency(pipeline: Pipeline, items: Sequence[Item], budget: Budget) -> Spread:
    """Time in ms from handing one item to the empty pipeline to the end of its last stage."""
    samples = []
    for _, item in zip(range(budget.latency_items), cycle(items), strict=False):
        number = len(pipeline.submitted)
        pipeline.submit(item)
        next(pipeline.results())
        samples.append(
            (completions(pipeline.events, number, number + 1)[0] - pipeline.submitted[number]) * MS
        )
    return spread(samples)


def completions(events: Sequence[StageEvent], first: int, last: int) -> list[float]:
    """When items ``first`` to ``last`` - 1 were complete, in seconds."""
    done: dict[int, float] = {}
    for event in list(events):
        if first <= event.item < last:
            done[event.item] = max(done.get(event.item, 0.0), event.end)
    return [done[i] for i in sorted(done)]


def gaps(ends: Sequence[float], together: int = 1) -> list[float]:
    """Times between results in ms, from completion times in seconds.

    A stage that alternates between fast and slow must not hide in a median: gaps are averaged over a few neighbours, a
    sixteenth of the stream. Results of ``together`` sources come in groups; an average takes whole groups.
    """
    width = together * max(1, (len(ends) - 1) // (16 * together))
    return [(ends[i + width] - ends[i]) / width * MS for i in range(0, len(ends) - width, width)]


def _settled(
    events: Sequence[StageEvent], warm: int, taken: int, stages: int, budget: Budget
) -> bool:
    if (taken - warm) % max(4, stages):
        return False
    between = gaps(completions(events, warm - 1, taken))
    return len(between) >= 6 and spread(between).relative_half_width <= budget.share


def _busy(events: Sequence[StageEvent], stage: int, first: int, last: int) -> float:
    return median(
        (e.end - e.start) * MS for e in list(events) if e.stage == stage and first <= e.item < last
    )
