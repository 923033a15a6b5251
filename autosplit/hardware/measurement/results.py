"""What was measured: plain values with their spread, in milliseconds and bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """A median with the interval it lies in (95 % unless said otherwise); ``samples`` are the raw values, may be empty."""

    median: float
    low: float
    high: float
    samples: tuple[float, ...] = ()


@dataclass(frozen=True)
class Accuracy:
    """How far outputs were from the reference: the largest absolute error, and the largest relative to the output's scale."""

    equal: bool
    max_abs_error: float
    max_rel_error: float
    items: int


@dataclass(frozen=True)
class Measurement:
    """One pipeline, measured: steady-state period, latency of one item, busy time of each stage, all in ms."""

    period_ms: Spread
    latency_ms: Spread
    stage_ms: tuple[float, ...]
    accuracy: Accuracy


@dataclass(frozen=True)
class Profile:
    """Time of every fused op on one device, in ms, in the order of the graph's ops; ``spread_ms`` is half the interval."""

    device: str
    op_ms: tuple[float, ...]
    spread_ms: tuple[float, ...]


@dataclass(frozen=True)
class LinkCost:
    """What it takes to use a device from here: a tensor costs ``latency_ms`` plus its bytes / ``bandwidth`` (bytes a ms) each
    time it goes there or comes back, and each run of a stage ``call_ms``. The defaults are those of this machine's memory.
    """

    device: str
    bandwidth: float = math.inf
    latency_ms: float = 0.0
    call_ms: float = 0.0


@dataclass(frozen=True)
class Baseline:
    """A way to run the model without splitting it: ``one core``, ``all cores``, a device by its name, or ``replicas``.

    ``period_ms`` is the time between two results; ``copies`` how many models run side by side (memory grows with it).
    """

    name: str
    period_ms: Spread
    latency_ms: Spread
    copies: int = 1
