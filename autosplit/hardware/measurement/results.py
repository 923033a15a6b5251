"""The values that measurements return, in milliseconds and bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from autosplit.deployment import Deployment
from autosplit.units import between, digits, milliseconds

_NO_DIGITS = str.maketrans("", "", "0123456789")
_Z = 1.96  # of the standard normal distribution, for 95 %
_NAMED = 2  # doubtful profiles whose lines are printed


@dataclass(frozen=True)
class Spread:
    """A median, or a quantile, with its 95 % interval.

    ``samples`` are the raw values, if they are known.
    """

    median: float
    low: float
    high: float
    samples: tuple[float, ...] = ()

    @property
    def half_width(self) -> float:
        """Half the interval."""
        return (self.high - self.low) / 2 if self.high > self.low else 0.0

    @property
    def relative_half_width(self) -> float:
        """Half the interval as a share of the median; infinite for a median of zero."""
        return self.half_width / self.median if self.median > 0 else math.inf


def spread(samples: Sequence[float], share: float = 0.5) -> Spread:
    """The median of samples and its 95 % interval.

    Another ``share`` gives that quantile. The interval is one of order statistics, which assumes
    nothing about the distribution, only that samples are independent. For fewer than six samples it
    is their range, which covers less than 95 %. Raises ValueError without samples.
    """
    if not samples:
        raise ValueError("a spread needs at least one sample")
    ordered = sorted(samples)
    count = len(ordered)
    # Ranks by the normal approximation of the binomial distribution:
    # Conover, Practical Nonparametric Statistics, section 3.2.
    reach = _Z * math.sqrt(count * share * (1 - share))
    low = max(0, math.floor(count * share - reach))
    high = min(count - 1, math.ceil(count * share + reach))
    middle = median(ordered) if share == 0.5 else ordered[math.ceil(count * share) - 1]
    return Spread(middle, ordered[low], ordered[high], tuple(samples))


@dataclass(frozen=True)
class Accuracy:
    """The largest errors of outputs; the relative one is a share of the largest output value.

    They are equal where it is at most ``tolerance``.
    """

    equal: bool
    max_abs_error: float
    max_rel_error: float
    items: int
    tolerance: float = 0.0


@dataclass(frozen=True)
class Measurement:
    """A measured pipeline: steady-state period, latency of one item, and its time in each stage.

    The time in a stage is that of one replica. ``max_rel_error`` is that of the outputs.
    ``disturbances`` say why the measurement cannot be trusted.
    """

    period_ms: Spread
    latency_ms: Spread
    stage_ms: tuple[float, ...]
    max_rel_error: float
    disturbances: tuple[str, ...] = ()


@dataclass(frozen=True)
class LoadPoint:
    """The latency in ms of ``items`` that came at ``rate`` a second, from when each was due.

    ``quantiles_ms`` has p50, p90, p95 and p99 with their intervals. ``disturbances`` say why they
    cannot be trusted.
    """

    rate: float
    items: int
    quantiles_ms: dict[str, Spread]
    disturbances: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """A summary in one line."""
        from autosplit.planner.workload import ENOUGH, WARM_UP  # not needed to run an export

        p50, p99 = self.quantiles_ms["p50"], self.quantiles_ms["p99"]
        doubts = f"; not to be trusted: {'; '.join(self.disturbances)}" if self.disturbances else ""
        if self.items < (1 - WARM_UP) * ENOUGH:
            doubts = f"; of only {self.items} items, it may look too good: measure longer{doubts}"
        return (
            f"{digits(self.rate)} items/s: latency p50 {milliseconds(p50.median)}, "
            f"p99 {milliseconds(p99.median)}{between(p99.low, p99.high)}{doubts}"
        )


@dataclass(frozen=True)
class LoadTest:
    """A pipeline under open load: ``points`` by their rates.

    ``lone_ms`` is the latency of an item that comes alone, ``capacity`` the items a second with all
    of them waiting, ``delay_ms`` the longest wait of a batch. ``goodput`` is the greatest rate that
    kept the ``quantile`` of the latency within ``limit_ms``, ``exceeded`` the least that did not.
    """

    points: tuple[LoadPoint, ...]
    lone_ms: float
    capacity: float
    delay_ms: float = 0.0
    limit_ms: float | None = None
    goodput: float | None = None
    exceeded: float | None = None
    quantile: str = "p99"

    def at(self, rate: float | None) -> LoadPoint | None:
        """The point measured at a rate, by default at the goodput; None if there is none."""
        asked = self.goodput if rate is None else rate
        return next((point for point in self.points if point.rate == asked), None)

    @property
    def text(self) -> str:
        """The goodput and its share of the capacity, in one line; empty without a limit."""
        if self.limit_ms is None or self.goodput is None:
            return ""
        limit = f"{self.quantile} {milliseconds(self.limit_ms)}"
        if self.limit_ms < self.lone_ms:
            least = milliseconds(self.lone_ms)
            return f"{limit} is not possible: an item that comes alone takes {least}"
        share = self.goodput / self.capacity
        return (
            f"goodput {digits(self.goodput)} items/s within {limit}: {share:.0%} of the "
            f"{digits(self.capacity)} items/s with all items waiting"
        )

    @property
    def disturbances(self) -> tuple[str, ...]:
        """The disturbances of all points, each kind once."""
        every = [reason for point in self.points for reason in point.disturbances]
        return tuple({reason.translate(_NO_DIGITS): reason for reason in every}.values())


@dataclass(frozen=True)
class SplitResults:
    """What is known about a split when it is exported; ``predicted`` is a period in ms.

    ``streams`` is the number of streams that the split is for.
    """

    measured: Measurement | None = None
    predicted: float | None = None
    baselines: Sequence[Baseline] = ()
    verdict: str | None = None
    load: LoadTest | None = None
    streams: int = 1


@dataclass(frozen=True)
class Profile:
    """The time of every fused op on one device; ``spread_ms`` is half its interval.

    Where ``batch`` items are computed at once, all times are per item.
    ``call_ms`` is the time that a stage takes besides its ops, where that is known.
    Times are infinite where the runtime cannot compute ops there; ``note`` says why. ``load`` is
    the share of the processor that other processes had meanwhile, ``disturbances`` say why the
    times cannot be trusted. ``measured_at`` is the time in UTC.
    """

    device: str
    op_ms: tuple[float, ...]
    spread_ms: tuple[float, ...]
    runtime: str = ""
    note: str = ""
    call_ms: float = 0.0
    load: float = 0.0
    disturbances: tuple[str, ...] = ()
    measured_at: str = field(default="", compare=False)
    batch: int = 1

    @classmethod
    def of_samples(cls, device: str, samples_ms: Sequence[Sequence[float]]) -> Profile:
        """The profile from samples of each op's time in ms: the median, and half its interval."""
        spreads = list(map(spread, samples_ms))
        op_ms, spread_ms = [s.median for s in spreads], [s.half_width for s in spreads]
        return cls(device, tuple(op_ms), tuple(spread_ms))

    @property
    def title(self) -> str:
        """The runtime, with the batch where that is not 1."""
        return self.runtime if self.batch == 1 else f"{self.runtime} at batch {self.batch}"

    @property
    def is_possible(self) -> bool:
        """Whether the device can compute any op; a model may have none."""
        return not self.op_ms or any(t != math.inf for t in self.op_ms)

    @property
    def whole_ms(self) -> float:
        """The time of an item in the whole model."""
        return math.fsum(self.op_ms) + self.call_ms

    @property
    def doubt(self) -> str:
        """Why the times cannot be trusted, in one line; empty where they can."""
        if not self.disturbances:
            return ""
        return (
            f"profile of {self.title} on {self.device} was disturbed: "
            f"{'; '.join(self.disturbances)} (measured at {self.measured_at or 'an unknown time'}, "
            "and again by the next command on a calm machine)"
        )

    def of_batch(self, batch: int) -> Profile:
        """The profile per item, where these times are those of ``batch`` items at once."""
        return replace(
            self,
            op_ms=tuple(t / batch for t in self.op_ms),
            spread_ms=tuple(t / batch for t in self.spread_ms),
            call_ms=self.call_ms / batch,
            batch=batch,
        )

    def without_times(self, reason: str) -> Profile:
        """The profile with infinite times if there is a ``reason``, which becomes its note."""
        times = (math.inf,) * len(self.op_ms) if reason else self.op_ms
        return replace(self, op_ms=times, note=reason)


def left_out(profiles: Sequence[Profile]) -> list[str]:
    """A line for each runtime that computes nothing on any of the devices: why it is left out."""
    able = {profile.title for profile in profiles if profile.is_possible}
    lines = [f"{p.title} is left out: {p.note}" for p in profiles if p.title not in able]
    return list(dict.fromkeys(lines))


def doubts(profiles: Sequence[Profile]) -> list[str]:
    """Why profiles cannot be trusted: the lines of the first ones and the number of the others."""
    lines = [profile.doubt for profile in profiles if profile.doubt]
    if len(lines) <= _NAMED + 1:
        return lines
    return [*lines[:_NAMED], f"so were {len(lines) - _NAMED} other profiles"]


@dataclass(frozen=True)
class LinkCost:
    """The costs of using a device; the defaults are those of this machine's memory.

    A tensor costs ``latency_ms`` + bytes / ``bandwidth`` (in bytes a ms) each time it goes there or
    comes back. Each run of a stage costs ``call_ms``.
    """

    device: str
    bandwidth: float = math.inf
    latency_ms: float = 0.0
    call_ms: float = 0.0


@dataclass(frozen=True)
class Baseline:
    """The unsplit model; its name is its runtime and how it runs: ``onnxruntime, 2 threads``.

    ``copies`` is how many models run side by side, which multiplies the memory. ``devices``: where
    each copy runs in ``runtime``; none where the runtime itself chooses the copies.
    """

    name: str
    period_ms: Spread
    latency_ms: Spread
    copies: int = 1
    runtime: str = ""
    devices: tuple[str, ...] = ()
    stage_ms: tuple[float, ...] = ()
    max_rel_error: float = 0.0
    disturbances: tuple[str, ...] = ()
    batch: int = 1

    def deployment(self, ops: int) -> Deployment | None:
        """The deployment that ran, for a model of ``ops`` ops; None if none describes it."""
        if not self.devices:
            return None
        copies = [len(self.devices)]
        return Deployment.of_split([range(ops)], self.devices, [self.runtime], copies, self.batch)

    @property
    def measurement(self) -> Measurement:
        """The results of the baseline, as the measurement of a deployment."""
        figures = self.period_ms, self.latency_ms, self.stage_ms, self.max_rel_error
        return Measurement(*figures, self.disturbances)
