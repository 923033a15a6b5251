"""Whether a pipeline keeps up with streams whose items come at a fixed rate."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np

from autosplit.hardware.execution.pipeline import Item, Pipeline
from autosplit.hardware.measurement import disturbance
from autosplit.hardware.measurement.measure import MS, completions, items_in_turn
from autosplit.hardware.measurement.results import RealTime, Spread


def real_time(
    rate: float,
    period: Spread,
    latencies: Sequence[float],
    streams: int = 1,
    disturbances: tuple[str, ...] = (),
) -> RealTime:
    """The result of ``latencies`` at a rate and the ``period`` at full speed, all in ms."""
    budget = MS / rate
    p99, worst = np.percentile(latencies, [99, 100]).tolist()
    # By the upper end of the interval, so the number of streams is not too high.
    holds = math.floor(budget / period.high) if period.high > 0 else 0
    share, jitter = streams * period.median / budget, float(np.std(latencies))
    return RealTime(rate, budget, share, p99, worst, jitter, holds, streams, disturbances)


def measure_real_time(
    pipeline: Pipeline,
    items: Sequence[Item],
    rate: float,
    seconds: float,
    period: Spread,
    streams: int,
) -> RealTime:
    """A pipeline whose period is known, measured for some seconds as ``paced_latencies`` does."""
    start = disturbance.Counters.now()
    latencies = paced_latencies(pipeline, items, rate, seconds, streams)
    return real_time(rate, period, latencies, streams, disturbance.since(start).reasons)


def paced_latencies(
    pipeline: Pipeline, items: Sequence[Item], rate: float, seconds: float, streams: int = 1
) -> list[float]:
    """The latencies in ms of items, repeated, that come at a rate a second for some seconds.

    Each of the streams has that rate, and their items come in turn. The pipeline has ``trace``.
    When it falls behind, no item is skipped; the next ones are late.
    """
    first, results = len(pipeline.submitted), pipeline.results()
    sent = waiting = 0
    rate *= streams
    start = time.perf_counter()
    for number, (stream, item) in enumerate(items_in_turn(pipeline, items, streams)):
        due = start + number / rate
        # A pipeline that falls behind must end in time too.
        is_over = number > 1 and time.perf_counter() > start + seconds
        if is_over or due > start + seconds:
            break
        if waiting == pipeline.capacity:
            next(results)
            waiting -= 1
        time.sleep(max(0.0, due - time.perf_counter()))
        pipeline.submit(item, stream=stream)
        sent, waiting = sent + 1, waiting + 1
    for _ in range(waiting):
        next(results)
    ends = completions(pipeline.events, first, len(pipeline.submitted))
    return [(ends[n // pipeline.batch] - start - n / rate) * MS for n in range(sent)]
