"""Whether a pipeline keeps up with a stream whose items come at a fixed rate."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle

import numpy as np

from autosplit.hardware.execution.pipeline import Item, Pipeline
from autosplit.hardware.measurement.measure import MS, completions
from autosplit.hardware.measurement.results import Spread
from autosplit.units import counted


@dataclass(frozen=True)
class RealTime:
    """A pipeline under ``items_per_second``, of which each has ``budget_ms``.

    ``share`` is the period as a share of the budget, ``streams`` how many such streams the pipeline
    holds. Latencies are from the moment an item is due, so that one that has to wait is late;
    ``jitter_ms`` is their standard deviation.
    """

    items_per_second: float
    budget_ms: float
    share: float
    p99_ms: float
    worst_ms: float
    jitter_ms: float
    streams: int

    @property
    def text(self) -> str:
        """All of it in one line."""
        return (
            f"{self.items_per_second:g} items/s: {self.share:.0%} of the {self.budget_ms:.3f} ms "
            f"of an item, latency p99 {self.p99_ms:.3f} ms, worst {self.worst_ms:.3f} ms, "
            f"jitter {self.jitter_ms:.3f} ms; holds {counted(self.streams, 'such stream')}"
        )


def real_time(items_per_second: float, period: Spread, latencies: Sequence[float]) -> RealTime:
    """What ``latencies`` at a rate and the ``period`` at full speed say, all in ms."""
    budget = MS / items_per_second
    p99, worst = np.percentile(latencies, [99, 100]).tolist()
    # By the upper end of the interval: that many streams are held for sure.
    streams = math.floor(budget / period.high) if period.high > 0 else 0
    jitter = float(np.std(latencies))
    return RealTime(items_per_second, budget, period.median / budget, p99, worst, jitter, streams)


def paced_latencies(
    pipeline: Pipeline, items: Sequence[Item], items_per_second: float, seconds: float
) -> list[float]:
    """The latencies in ms of items, repeated, that come at a fixed rate for some seconds.

    The pipeline has ``trace``. No item is left out when it falls behind: the next ones are late.
    """
    first, results, waiting = len(pipeline.submitted), pipeline.results(), 0
    start = time.perf_counter()
    for number, item in enumerate(cycle(items)):
        due = start + number / items_per_second
        # One that falls behind still ends in time.
        is_over = number > 1 and time.perf_counter() > start + seconds
        if is_over or due > start + seconds:
            break
        if waiting == pipeline.capacity:
            next(results)
            waiting -= 1
        time.sleep(max(0.0, due - time.perf_counter()))
        pipeline.submit(item)
        waiting += 1
    for _ in range(waiting):
        next(results)
    ends = completions(pipeline.events, first, len(pipeline.submitted))
    return [(end - start - n / items_per_second) * MS for n, end in enumerate(ends)]
