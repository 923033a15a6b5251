"""What moving a tensor to a device and back costs: measured by the very copies a stage makes, fitted by a line."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np

from autosplit.hardware.measurement.results import LinkCost

MS = 1e3
_SIZES = (1 << 10, 1 << 14, 1 << 17, 1 << 20)  # bytes
_REPEATS = 9
_SIZE_S = 0.3  # a slow link gets fewer repeats


def measure(device: str, runtime: Any, call: Callable[[], object]) -> LinkCost:
    """The link to a TVM device, from round trips of arrays between this machine's memory and the device.

    ``call`` is a call of the device that does nothing: a stage makes some of them too.
    """
    call_ms = _median_ms(call)
    samples = [(size, _round_trip_ms(runtime, size) / 2 + call_ms) for size in _SIZES]
    bandwidth, latency = fit(samples)
    return LinkCost(device, bandwidth, latency, call_ms)


def fit(samples: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """(bandwidth in bytes a ms, latency in ms) of the line through (bytes, ms), by least squares of the relative errors.

    Neither is negative: what noise would make so is set to nothing, and the other fitted alone.
    """
    size, took = (np.array(column, dtype=np.float64) for column in zip(*samples, strict=True))
    weight = 1 / np.maximum(took, 1e-9)
    columns = np.stack([size * weight, weight], axis=1)
    (per_byte, latency), *_ = np.linalg.lstsq(columns, took * weight, rcond=None)
    if per_byte <= 0:
        return float("inf"), float(1 / np.mean(weight))
    if latency < 0:
        per_byte, latency = float(np.mean(size * weight) / np.mean((size * weight) ** 2)), 0.0
    return float(1 / per_byte), float(latency)


def _round_trip_ms(runtime: Any, size: int) -> float:
    import tvm

    sent = np.arange(size // 4, dtype=np.int32).view(np.float32)
    there = tvm.runtime.empty(sent.shape, "float32", runtime)

    def back_and_forth() -> None:
        there.copyfrom(sent)
        there.numpy()

    return _median_ms(back_and_forth)


def _median_ms(work: Callable[[], object]) -> float:
    work()
    samples: list[float] = []
    deadline = time.perf_counter() + _SIZE_S
    while len(samples) < _REPEATS and (len(samples) < 2 or time.perf_counter() < deadline):
        start = time.perf_counter()
        work()
        samples.append((time.perf_counter() - start) * MS)
    return median(samples)
