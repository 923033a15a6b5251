"""Whether a pipeline keeps up with streams whose items come at a fixed rate."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from itertools import cycle

import numpy as np

from autosplit.hardware.execution.pipeline import Item, Pipeline
from autosplit.hardware.measurement import disturbance
from autosplit.hardware.measurement.measure import MS, completions
from autosplit.hardware.measurement.results import RealTime, Spread


def real_time(
    items_per_second: float,
    period: Spread,
    latencies: Sequence[float],
    streams: int = 1,
    disturbances: tuple[str, ...] = (),
) -> RealTime:
    """What ``latencies`` at a rate and the ``period`` at full speed say, all in ms."""
    budget = MS / items_per_second
    p99, worst = np.percentile(latencies, [99, 100]).tolist()
    # By the upper end of the interval: that many streams are held for sure.
    holds = math.floor(budget / period.high) if period.high > 0 else 0
    share, jitter = streams * period.median / budget, float(np.std(latencies))
    figures = share, p99, worst, jitter
    return RealTime(items_per_second, budget, *figures, holds, streams, disturbances)


def measure_real_time(
    pipeline: Pipeline,
    items: Sequence[Item],
    items_per_second: float,
    seconds: float,
    period: Spread,
    streams: int = 1,
) -> RealTime:
    """A pipeline whose period is known, measured for some seconds as ``paced_latencies`` does."""
    start = disturbance.Counters.now()
    latencies = paced_latencies(pipeline, items, items_per_second, seconds, streams)
    reasons = disturbance.since(start).reasons
    return real_time(items_per_second, period, latencies, streams, reasons)


def paced_latencies(
    pipeline: Pipeline,
    items: Sequence[Item],
    items_per_second: float,
    seconds: float,
    streams: int = 1,
) -> list[float]:
    """The latencies in ms of items, repeated, that come at a fixed rate for some seconds.

    Each of the streams has that rate, and their items come in turn. The pipeline has ``trace``. No
    item is left out when it falls behind: the next ones are late.
    """
    first, results, waiting = len(pipeline.submitted), pipeline.results(), 0
    rate = items_per_second * streams
    start = time.perf_counter()
    for number, item in enumerate(cycle(items)):
        due = start + number / rate
        # One that falls behind still ends in time.
        is_over = number > 1 and time.perf_counter() > start + seconds
        if is_over or due > start + seconds:
            break
        if waiting == pipeline.capacity:
            next(results)
            waiting -= 1
        time.sleep(max(0.0, due - time.perf_counter()))
        pipeline.submit(item, stream=number % streams)
        waiting += 1
    for _ in range(waiting):
        next(results)
    ends = completions(pipeline.events, first, len(pipeline.submitted))
    return [(end - start - n / rate) * MS for n, end in enumerate(ends)]
