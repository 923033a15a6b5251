"""What a deployment does under load: a simulation of batches, queues and replicas.

Items arrive by themselves (an open workload), whether or not earlier ones are done. They are
collected into batches, which wait for a free replica of each stage in turn. A batch that is not
full enters once its first item has waited for ``delay_ms`` and fewer batches are inside than there
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
ITEMS = 20_000  # of a simulation, so that 200 of them are above the quantile
ENOUGH = 1_000  # of a measurement; few items queue less than many, so that rates look too good
MOST = 1_000_000  # of one, beyond what a pipeline can compute meanwhile
_LONGEST = 12  # times the seconds of a measurement, after which it ends without enough items
_MS = 1e3
WARM_UP = 0.1  # the share of the items that come before the queues are as long as they get
_DELAYS = (0.1, 0.0, 0.3)  # shares of a limit that a batch may wait
_PRECISION = 0.005  # of a goodput
_FEW_ITEMS = 4_000  # what a goodput lacks in precision all deployments of a study share
_NEARLY_ALL = 0.9  # of the capacity, from which no other delay can gain much
_SHARES = (1.0, 0.97, 0.94, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02)


@dataclass(frozen=True)
class Workload:
    """How items come: at a ``rate`` a second, a ``quantile`` of their latency within ``limit_ms``.

    Either may be missing. A batch waits for ``delay_ms`` to fill; None is chosen here. Arrivals are
    Poisson, or follow each other as those of ``times``, ascending, on the scale of the rate.
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
        """The delays that may be best at a batch, the likeliest first.

        Since batches go on collecting while replicas are busy, the goodput mostly does not depend
        on it; it does where a limit is hardly longer than what stages take.
        """
        if batch == 1 or self.delay_ms is not None or self.limit_ms is None:
            return (self.delay_ms or 0.0,)
        return tuple(share * self.limit_ms for share in _DELAYS)

    def arrivals(self, count: int, seed: int = 0) -> Array:
        """When so many items come, in ms; all rates have the same arrivals on another scale."""
        assert self.rate is not None
        unit = _repeated(self.times, count) if self.times else _poisson(count, seed)
        return unit * (_MS / self.rate)


@dataclass(frozen=True)
class Station:
    """A stage: how long a replica takes for a batch, and how many replicas there are.

    Of several ``times_ms``, such as measured ones, each batch draws one.
    """

    times_ms: tuple[float, ...]
    replicas: int = 1

    @property
    def rate(self) -> float:
        """Batches a millisecond at most."""
        mean = math.fsum(self.times_ms) / len(self.times_ms)
        return self.replicas / mean if mean > 0 else math.inf


@dataclass(frozen=True)
class Server:
    """The stages of a deployment, and its batcher."""

    stations: tuple[Station, ...]
    batch: int = 1
    delay_ms: float = 0.0

    def scaled(self, factor: float) -> Server:
        """The deployment with all times of its stages times a factor."""
        times = (tuple(factor * ms for ms in station.times_ms) for station in self.stations)
        pairs = zip(self.stations, times, strict=True)
        return replace(self, stations=tuple(replace(s, times_ms=t) for s, t in pairs))

    @property
    def capacity(self) -> float:
        """Items a second with all batches full."""
        return _MS * self.batch * min(station.rate for station in self.stations)

    @property
    def shortest_ms(self) -> float:
        """The least latency of an item: the mean times of all stations."""
        return math.fsum(station.replicas / station.rate for station in self.stations)


@lru_cache(maxsize=4)
def _poisson(count: int, seed: int) -> Array:
    return np.cumsum(np.random.default_rng(seed).exponential(size=count))


@lru_cache(maxsize=4)
def _repeated(times: tuple[float, ...], count: int) -> Array:
    """Items that follow each other as those of some times do, again and again, one a unit."""
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
        # Items overtake each other where times differ; a stage takes them as they come.
        order = np.argsort(ends, kind="stable")
        ends[order] = _serve(ends[order], station, random)
    return np.asarray(ends - arrivals)


def items_measured(rate: float, seconds: float) -> int:
    """How many items a measurement of a rate takes: those of some seconds, and enough of them."""
    least = min(float(ENOUGH), _LONGEST * seconds * rate)
    return max(1, round(min(max(seconds * rate, least), MOST)))


def quantile(values: Array, share: float) -> float:
    """The least of the values that so large a share of them does not exceed."""
    return float(np.quantile(values, share, method="inverted_cdf"))


def quantile_at(server: Server, workload: Workload, items: int = ITEMS, seed: int = 0) -> float:
    """The quantile of the latency at the rate; that of an overload grows with items."""
    all_ms = latencies(server, workload.arrivals(items, seed), seed)
    return quantile(all_ms[int(WARM_UP * items) :], workload.share)


def goodput(
    server: Server, workload: Workload, items: Callable[[float], int] = lambda _: ITEMS
) -> float:
    """The greatest rate at which the workload keeps its limit; 0 where none does.

    ``items`` says how many are simulated at a rate. Slow arrivals wait long for a full batch, so
    rates are tried downwards from the capacity. The greatest that keeps the limit is refined by
    bisection.
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
    """The end of the good rates between a good one and one that is not."""
    while high - low > _PRECISION * high:
        middle = (low + high) / 2
        low, high = (middle, high) if is_good(middle) else (low, middle)
    return low


def served(
    workload: Workload, stages: Sequence[Stage], stage_ms: Sequence[float], period_ms: float
) -> tuple[float, float]:
    """The goodput of a deployment with such a period, and the delay in ms that it needs.

    ``stage_ms``: the time of an item in a replica of each stage.
    """
    periods = [ms / stage.replicas for ms, stage in zip(stage_ms, stages, strict=True)]
    # Threads hand over and wait, which takes part of the period too.
    scale = period_ms / (max(periods) or math.inf)
    return simulated(workload, stages, [scale * period for period in periods])


def simulated(
    workload: Workload, stages: Sequence[Stage], periods: Sequence[float]
) -> tuple[float, float]:
    """As ``served`` for stages whose replicas together take so many ms for an item."""
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
    """When each arrival leaves a station of one queue; ``arrivals`` are ascending."""
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
    """Each begins when it is there and the one before it has left (Lindley's recursion).

    The end of item n is the largest, over all k <= n, of arrival k plus the times from k to n.
    """
    worked = np.cumsum(times)
    return np.asarray(worked + np.maximum.accumulate(arrivals - (worked - times)))


def _serve_batches(arrivals: Array, server: Server, random: np.random.Generator) -> Array:
    """When the batch of each arrival leaves the last station; batches keep their order."""
    due_at, size = arrivals.tolist(), server.batch
    times = [_times(station, len(due_at), random).tolist() for station in server.stations]
    free = [[0.0] * station.replicas for station in server.stations]
    # When the last batches leave, as many as may be inside before one that is not full.
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
