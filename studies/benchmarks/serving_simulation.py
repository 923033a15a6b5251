"""The goodput of pipelines by simulation and under load, with the same arrivals."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import pairwise

from autosplit.hardware.execution.pipeline import Item, Pipeline
from autosplit.hardware.measurement import measure
from autosplit.hardware.measurement.measure import MS, Budget
from autosplit.hardware.measurement.open_loop import load_test
from autosplit.planner.workload import Server, Station, Workload, goodput, items_measured
from tests.hardware.fakes import fake_pipeline, graph, items

LIMIT = 5  # times the latency of a single item
# Pipelines of stages that sleep: the (ms, replicas) of each stage, and the batch.
SLEEPERS: Sequence[tuple[Sequence[tuple[float, int]], int]] = (
    ([(20, 1)], 1), ([(20, 2)], 1), ([(30, 3)], 1), ([(20, 1), (10, 1)], 1),
    ([(20, 1), (30, 2)], 1), ([(10, 1), (20, 1), (15, 1)], 1),
    ([(40, 1)], 4), ([(40, 2)], 4), ([(30, 1), (30, 1)], 4), ([(60, 2)], 8),
)  # fmt: skip
SPREAD = 0.2  # of how long they sleep


def sleeper(stages: Sequence[tuple[float, int]], batch: int) -> Pipeline:
    """A pipeline of stages that sleep; ``stages`` has the (ms, replicas) of each."""
    names = ["x", *(f"y{number}" for number in range(len(stages)))]
    chain = graph([(after, [before]) for before, after in pairwise(names)], ["x"], names[-1:])

    def sleep(ms: float) -> Callable[[int], object]:
        return lambda _: time.sleep(ms / MS * random.uniform(1 - SPREAD, 1 + SPREAD))

    before = {number: sleep(ms) for number, (ms, _) in enumerate(stages)}
    parts, replicas = [[number] for number in before], [count for _, count in stages]
    return fake_pipeline(chain, parts, names[-1:], 2, True, before, replicas, None, batch)[0]


def goodputs(
    load: Callable[[], Pipeline],
    inputs: Sequence[Item],
    workload: Workload,
    seconds: float,
    least: float = 0.0,
) -> tuple[float, float, float]:
    """A traced pipeline's simulated goodput, its measured one, and the lowest rate found too high.

    Service times are drawn from those measured with all items waiting. A goodput below ``least`` is
    0; it is not measured if the throughput with all items waiting is no more than ``least``.
    """
    with load() as pipeline:
        period = measure.period_and_busy(pipeline, inputs, Budget(seconds=seconds))[0].median
        times: list[list[float]] = [[] for _ in pipeline.replicas]
        for event in pipeline.events[measure.warm_up_items(pipeline) * len(times) :]:
            times[event.stage].append((event.end - event.start) * MS)
        workload = replace(workload, delay_ms=workload.delays(pipeline.batch)[0])
        stations = tuple(map(Station, map(tuple, times), pipeline.replicas))
        server = Server(stations, pipeline.batch, workload.delay_ms or 0.0)
        # Handing items over between threads takes part of the period too.
        server = server.scaled(server.capacity * period / MS)
        predicted = goodput(server, workload, partial(items_measured, seconds=seconds))
        if MS / period <= least:
            return predicted, 0.0, least
        test = load_test(pipeline, inputs, workload, seconds, MS / period, least=least)
    return predicted, test.goodput or 0.0, test.exceeded or 0.0


def error(predicted: float, measured: float, exceeded: float) -> float:
    """How far a prediction is from the middle of the step that measured it, as a share."""
    middle = (measured + exceeded) / 2
    return abs(predicted / middle - 1) if measured else float(predicted > exceeded)


def of_sleepers(seconds: float) -> dict[str, tuple[float, float, float]]:
    """The ``goodputs`` of pipelines that sleep, all at once, since they leave the processor idle.

    Where the system allows it their threads have real-time priority, so that a busy machine does
    not disturb them.
    """

    def of_one(case: tuple[Sequence[tuple[float, int]], int]) -> tuple[float, float, float]:
        workload = Workload(limit_ms=LIMIT * sum(ms for ms, _ in case[0]))
        return goodputs(partial(sleeper, *case), items(3), workload, seconds)

    def first() -> None:
        with contextlib.suppress(PermissionError):  # threads inherit it
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))

    with ThreadPoolExecutor(len(SLEEPERS), initializer=first) as pool:
        return dict(zip(map(str, SLEEPERS), pool.map(of_one, SLEEPERS), strict=True))
