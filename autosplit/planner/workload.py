"""Simulates a deployment under load: its batches, queues and replicas.

Items arrive whether or not earlier ones are done (an open workload). They are collected into
batches, which wait for a free replica of each stage in turn. A batch that is not full enters the
pipeline once its first item has waited for ``delay_ms`` and fewer batches are inside than there
are replicas; until then more items join. Partial batches take as long as full ones. All times are
in milliseconds, rates are in items a second.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from heapq import heappushpop, heapreplace
from typing import Any

import numpy as np

from autosplit.deployment import Stage

Array = np.ndarray[Any, np.dtype[np.float64]]
QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
ITEMS = 20_000  # items of a simulation, so that 200 of them are above the 99 % quantile
ENOUGH = 1_000  # items of a measurement; fewer have shorter queues, so that rates look too good
MOST = 1_000_000  # items of a measurement at most: more than a pipeline can compute meanwhile
_LONGEST = 12  # a measurement lasts this many times its seconds at most to get ENOUGH items
_MS = 1e3
WARM_UP = 0.1  # the share of the first items, which arrive before queues have their usual length
_DELAYS = (0.1, 0.0, 0.3)  # delays that are tried for a batch, as shares of the limit
_PRECISION = 0.005  # of a goodput, relative
_FEW_ITEMS = 4_000  # items of a simulation in a study: less precise, but alike for all candidates
_NEARLY_ALL = 0.9  # share of the capacity above which no other delay can gain much
_SHARES = (1.0, 0.97, 0.94, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02)


@dataclass(frozen=True)
class Workload:
    """How items arrive: ``rate`` a second, with ``limit_ms`` for a ``quantile`` of the latency.

    Rate and limit may be None. A batch waits up to ``delay_ms`` to fill; for None the simulation
    chooses. Arrivals are Poisson, or have the gaps of ``times`` (ascending), scaled to the rate.
    """

    rate: float | None = None
    limit_ms: float | None = None
    delay_ms: float | None = None
    quantile: str = "p99"
    times: tuple[float, ...] = ()

    @property
    def share(self) -> float:
        """The share of the items whose latency must be within the limit."""
        return QUANTILES[self.quantile]

    def delays(self, batch: int) -> tuple[float, ...]:
        """The delays that may be best for a batch size, the likeliest first.

        Since batches go on filling while replicas are busy, the delay mostly does not change the
        goodput; it does if the limit is hardly longer than the time of the stages.
        """
        if batch == 1 or self.delay_ms is not None or self.limit_ms is None:
            return (self.delay_ms or 0.0,)
        return tuple(share * self.limit_ms for share in _DELAYS)

    def arrivals(self, count: int, seed: int = 0) -> Array:
        """The arrival times of ``count`` items in ms; another rate only scales the same times."""
        assert self.rate is not None
        unit = _repeated(self.times, count) if self.times else _poisson(count, seed)
        return unit * (_MS / self.rate)


@dataclass(frozen=True)
class Station:
    """A stage: the time of a batch in a replica, and the number of replicas.

    If there are several ``times_ms``, such as measured ones, each batch draws one of them.
    """

    times_ms: tuple[float, ...]
    replicas: int = 1

    @property
    def rate(self) -> float:
        """The largest number of batches a millisecond."""
        mean = math.fsum(self.times_ms) / len(self.times_ms)
        return self.replicas / mean if mean > 0 else math.inf


@dataclass(frozen=True)
class Server:
    """The stages of a deployment, and its batcher."""

    stations: tuple[Station, ...]
    batch: int = 1
    delay_ms: float = 0.0

    def scaled(self, factor: float) -> Server:
        """The server with the times of all its stages multiplied by a factor."""
        times = (tuple(factor * ms for ms in station.times_ms) for station in self.stations)
        pairs = zip(self.stations, times, strict=True)
        return replace(self, stations=tuple(replace(s, times_ms=t) for s, t in pairs))

    @property
    def capacity(self) -> float:
        """The largest number of items a second, which takes full batches."""
        return _MS * self.batch * min(station.rate for station in self.stations)

    @property
    def shortest_ms(self) -> float:
        """The least latency of an item: the sum of the mean times of all stations."""
        return math.fsum(station.replicas / station.rate for station in self.stations)


@lru_cache(maxsize=4)
def _poisson(count: int, seed: int) -> Array:
    return np.cumsum(np.random.default_rng(seed).exponential(size=count))


@lru_cache(maxsize=4)
def _repeated(times: tuple[float, ...], count: int) -> Array:
    """Arrival times that repeat the gaps of ``times``, scaled to a mean gap of 1."""
    gaps = np.diff(times)
    return np.cumsum(np.resize(gaps / gaps.mean(), count))


def latencies(server: Server, arrivals: Array, seed: int = 0) -> Array:
    """The latency of each item, in the order of arrival; ``arrivals`` are ascending times."""
    arrivals = np.asarray(arrivals, dtype=np.float64)
    random = np.random.default_rng(seed)
    if server.batch > 1:
        return _serve_batches(arrivals, server, random) - arrivals
    ends = arrivals.copy()
    for station in server.stations:
        # Items may overtake each other where times differ; a stage serves them as they arrive.
        order = np.argsort(ends, kind="stable")
        ends[order] = _serve(ends[order], station, random)
    return np.asarray(ends - arrivals)


def items_measured(rate: float, seconds: float) -> int:
    """How many items to measure at a rate: those of ``seconds``, or if these are few ``ENOUGH``."""
    least = min(float(ENOUGH), _LONGEST * seconds * rate)
    return max(1, round(min(max(seconds * rate, least), MOST)))


def quantile(values: Array, share: float) -> float:
    """The least value that at least ``share`` of the values do not exceed."""
    return float(np.quantile(values, share, method="inverted_cdf"))


def quantile_at(server: Server, workload: Workload, items: int = ITEMS, seed: int = 0) -> float:
    """The quantile of the latency at the rate; under overload it grows with ``items``."""
    all_ms = latencies(server, workload.arrivals(items, seed), seed)
    return quantile(all_ms[int(WARM_UP * items) :], workload.share)


def goodput(
    server: Server, workload: Workload, items: Callable[[float], int] = lambda _: ITEMS
) -> float:
    """The greatest rate at which the workload keeps its limit; 0 where none does.

    ``items`` says how many items are simulated at a rate. Items also wait long for a full batch if
    they arrive slowly, so rates are tried downwards from the capacity. The greatest rate that keeps
    the limit is refined by bisection.
    """
    limit = math.inf if workload.limit_ms is None else workload.limit_ms
    if server.shortest_ms > limit or server.capacity == math.inf:
        return 0.0 if server.shortest_ms > limit else math.inf

    def is_good(rate: float) -> bool:
        return quantile_at(server, replace(workload, rate=rate), items(rate)) <= limit

    above = server.capacity
    for part in _SHARES:
        below = part * server.capacity
        if is_good(below):
            return _bisected(is_good, below, above)
        above = below
    return 0.0


def _bisected(is_good: Callable[[float], bool], low: float, high: float) -> float:
    """The greatest good rate between a good one, ``low``, and one that is not, by bisection."""
    while high - low > _PRECISION * high:
        middle = (low + high) / 2
        low, high = (middle, high) if is_good(middle) else (low, middle)
    return low


def served(
    workload: Workload, stages: Sequence[Stage], stage_ms: Sequence[float], period_ms: float
) -> tuple[float, float]:
    """The goodput of a deployment with a known period, and the batch delay in ms for it.

    ``stage_ms``: the time of an item in a replica of each stage.
    """
    periods = [ms / stage.replicas for ms, stage in zip(stage_ms, stages, strict=True)]
    # The period is longer than the stages take, because threads hand over and wait.
    scale = period_ms / (max(periods) or math.inf)
    return simulated(workload, stages, [scale * period for period in periods])


def simulated(
    workload: Workload, stages: Sequence[Stage], periods: Sequence[float]
) -> tuple[float, float]:
    """As ``served``; ``periods``: the ms for an item of all replicas of each stage together."""
    batch = stages[0].options[0].row.batch
    best_rate, best_delay = 0.0, workload.delays(batch)[0]
    if max(periods) == math.inf or workload.limit_ms is None:
        return best_rate, best_delay
    stations = tuple(
        Station((period * batch * stage.replicas,), stage.replicas)
        for period, stage in zip(periods, stages, strict=True)
    )
    for delay in workload.delays(batch):
        server = Server(stations, batch, delay)
        rate = goodput(server, workload, lambda _: _FEW_ITEMS)
        if rate > best_rate:
            best_rate, best_delay = rate, delay
        if best_rate > _NEARLY_ALL * server.capacity:
            break
    return best_rate, best_delay


def _times(station: Station, count: int, random: np.random.Generator) -> Array:
    if len(station.times_ms) == 1:
        return np.full(count, station.times_ms[0])
    return random.choice(np.array(station.times_ms), count)


def _serve(arrivals: Array, station: Station, random: np.random.Generator) -> Array:
    """The time when each arrival leaves a station with one queue; ``arrivals`` are ascending."""
    times, count = _times(station, len(arrivals), random), station.replicas
    if count == 1:
        return _one_server(arrivals, times)
    if len(station.times_ms) == 1:
        # All take the same time, so replicas take turns.
        ends = np.empty_like(arrivals)
        for turn in range(count):
            ends[turn::count] = _one_server(arrivals[turn::count], times[turn::count])
        return ends
    free, left = [0.0] * count, []
    for arrival, time in zip(arrivals.tolist(), times.tolist(), strict=True):
        left.append(max(arrival, free[0]) + time)
        heapreplace(free, left[-1])
    return np.array(left)


def _one_server(arrivals: Array, times: Array) -> Array:
    """When each arrival leaves a single server that serves in order (Lindley's recursion).

    The end of item n is the largest, over all k <= n, of arrival k plus the times from k to n.
    """
    worked = np.cumsum(times)
    return np.asarray(worked + np.maximum.accumulate(arrivals - (worked - times)))


def _serve_batches(arrivals: Array, server: Server, random: np.random.Generator) -> Array:
    """When the batch of each arrival leaves the last station; batches keep their order."""
    due_at, size = arrivals.tolist(), server.batch
    times = [_times(station, len(due_at), random).tolist() for station in server.stations]
    free = [[0.0] * station.replicas for station in server.stations]
    # When the latest batches leave, one per replica; a partial batch waits for the first of them.
    leaving = [0.0] * sum(station.replicas for station in server.stations)
    sizes, ends = list[int](), list[float]()
    first = 0
    while first < len(due_at):
        last = first + size - 1
        full = due_at[last] if last < len(due_at) else math.inf
        end = min(full, max(due_at[first] + server.delay_ms, leaving[0]))
        sizes.append(bisect_right(due_at, end, first, min(last + 1, len(due_at))) - first)
        for replicas, of_station in zip(free, times, strict=True):
            end = max(end, replicas[0]) + of_station[len(ends)]
            heapreplace(replicas, end)
        heappushpop(leaving, end)
        ends.append(end)
        first += sizes[-1]
    return np.repeat(ends, sizes)
