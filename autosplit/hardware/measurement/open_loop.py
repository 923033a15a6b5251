"""Load tests with open load: items come at a given rate, whether or not earlier ones are done.

Latencies count from the moment an item is due, so they include the wait of an item that is sent
late because the pipeline was full. A load that waits for results would leave such waits out
(coordinated omission).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from autosplit import phases
from autosplit.hardware.execution.pipeline import Item, Pipeline
from autosplit.hardware.measurement import disturbance
from autosplit.hardware.measurement.measure import MS, items_in_turn, without_full_collections
from autosplit.hardware.measurement.results import LoadPoint, LoadTest, spread
from autosplit.planner.workload import QUANTILES, WARM_UP, Workload, items_measured

_FIRST = 0.8  # the share of the capacity at which the search for the goodput begins
STEPS = 6  # rates that the search tries
_LATE = 2.0  # after this multiple of the planned time no further item is sent
_LONE_ITEMS = 3


def load_test(
    pipeline: Pipeline,
    items: Sequence[Item],
    workload: Workload,
    seconds: float,
    capacity: float,
    streams: int = 1,
    least: float = 0.0,
) -> LoadTest:
    """Measure a pipeline at the workload's rate, and its goodput if the workload has a limit.

    Each rate takes about ``seconds``, and longer where too few items would come; ``capacity`` is
    how many items a second the pipeline computes if all are there at once. The goodput is found by
    bisection; it is None where it is below ``least``.
    """
    delay_ms = workload.delays(pipeline.batch)[0]
    pipeline.with_delay(delay_ms)
    limit = workload.limit_ms

    def at(rate: float, limit: float | None = limit) -> LoadPoint:
        phases.report(f"running {rate:.4g} items/s", pipeline.threads)
        at_rate = replace(workload, rate=rate, limit_ms=limit)
        return load_point(pipeline, items, at_rate, seconds, streams)

    lone = math.inf  # the latency of an item that comes alone
    for stream, item in islice(items_in_turn(pipeline, items, 1), _LONE_ITEMS):
        start = time.perf_counter()
        pipeline.run([item], stream)
        lone = min(lone, (time.perf_counter() - start) * MS)
    # At the workload's own rate the test does not stop early, as it may at a limit.
    points = [] if workload.rate is None else [at(workload.rate, limit=None)]
    test = LoadTest((), lone, capacity, delay_ms, quantile=workload.quantile)
    if limit is None:
        return replace(test, points=tuple(points))
    low, high, rate = 0.0, capacity, least or _FIRST * capacity
    for _ in range(STEPS if lone <= limit else 0):
        points.append(at(rate))
        is_good = points[-1].quantiles_ms[workload.quantile].median <= limit
        low, high = (rate, high) if is_good else (low, rate)
        if high <= least:
            break
        rate = (low + high) / 2
    points.sort(key=lambda point: point.rate)
    served = None if high <= least else low
    return replace(test, points=tuple(points), limit_ms=limit, goodput=served, exceeded=high)


def load_point(
    pipeline: Pipeline, items: Sequence[Item], workload: Workload, seconds: float, streams: int = 1
) -> LoadPoint:
    """The latencies at the rate of a workload, after a warm-up."""
    assert workload.rate is not None
    start = disturbance.Counters.now()
    count = items_measured(workload.rate, seconds)
    latencies = open_latencies(pipeline, items, workload, count, streams)
    timed = latencies[int(WARM_UP * len(latencies)) :]
    quantiles = {n: replace(spread(timed, share=q), samples=()) for n, q in QUANTILES.items()}
    return LoadPoint(workload.rate, len(timed), quantiles, disturbance.since(start).reasons)


@without_full_collections()
def open_latencies(
    pipeline: Pipeline, items: Sequence[Item], workload: Workload, count: int, streams: int = 1
) -> list[float]:
    """The latencies in ms of about ``count`` items that come at the workload's rate.

    ``items`` are repeated, dealt to the streams in turn. The first one comes at once, however low
    the rate is. If too many exceed the limit of the workload, as many are sent once more, since a
    machine that was busy for a moment delays all waiting items. The test ends early if the pipeline
    falls behind so far that it takes twice the time, or once so many items have exceeded the limit
    that the quantile of all must exceed it.
    """
    most = count if workload.limit_ms is None else 2 * count
    arrivals = workload.arrivals(most) / MS
    due = (arrivals - arrivals[0]).tolist()
    latest, first = _LATE * due[-1], WARM_UP * count
    limit_s = math.inf if workload.limit_ms is None else workload.limit_ms / MS
    late, share_late = list[int](), 1 - workload.share
    ends, done = [0.0] * len(due), threading.Semaphore(0)
    sent, failed = 0, list[Future[Any]]()  # other tickets are not kept: outputs may be large

    def note(number: int, ticket: Future[Any]) -> None:
        ends[number] = time.perf_counter()
        if number >= first and ends[number] - start - due[number] > limit_s:
            late.append(number)
        if ticket.exception() is not None:
            failed.append(ticket)
        done.release()

    start = time.perf_counter()
    in_turn = items_in_turn(pipeline, items, streams)
    for number, (at, (stream, item)) in enumerate(zip(due, in_turn, strict=False)):
        now = time.perf_counter() - start
        is_enough = number == count and len(late) <= share_late * (count - first)
        if number and (is_enough or now > latest or len(late) > share_late * most):
            break
        time.sleep(max(0.0, at - now))
        pipeline.enter(item, stream).add_done_callback(partial(note, number))
        sent += 1
    for _ in range(sent):
        done.acquire()
    for ticket in failed:
        ticket.result()
    return [(end - start - at) * MS for end, at in zip(ends[:sent], due, strict=False)]
