"""Costs of moving a tensor to a device and back, measured with the copies that a stage makes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np

from autosplit.extras import tvm
from autosplit.hardware.devices import rpc
from autosplit.hardware.devices.device import Cores, LocalDevice, Rpc
from autosplit.hardware.measurement.results import LinkCost
from autosplit.hardware.profiling.timing import repeated_ms

SIZES = (1 << 10, 1 << 14, 1 << 17, 1 << 20)  # bytes
_MAX_REPEATS = 9
_SIZE_S = 0.3  # a slow link gets fewer repeats


def link_cost(device: LocalDevice | Rpc) -> LinkCost:
    """Measure the costs of sending tensors to a device and of calling it, zero on local cores."""
    if isinstance(device, Cores):
        return LinkCost(str(device))
    if isinstance(device, Rpc):
        connection = rpc.connect(device)
        with connection.guarded("its link was measured"):
            return measure(str(device), connection.tvm_device, connection.call)
    tvm_device = device.tvm_device()
    return measure(str(device), tvm_device, tvm_device.sync)


def measure(device: str, tvm_device: Any, call: Callable[[], object]) -> LinkCost:
    """Measure the link to a TVM device by round trips of arrays between its memory and this one's.

    ``call`` is a call of the device that computes nothing; a stage makes some of them too.
    """
    call_ms = median_ms(call)
    samples = [(size, _round_trip_ms(tvm_device, size) / 2 + call_ms) for size in SIZES]
    bandwidth, latency = fit(samples)
    return LinkCost(device, bandwidth, latency, call_ms)


def fit(samples: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Fit a bandwidth in bytes a ms and a latency in ms to points (bytes, ms).

    The fit minimises the squares of the relative errors. Noise makes neither result negative.
    """
    sizes, times = np.array(samples, dtype=np.float64).T
    # Dividing each equation by its time turns absolute errors into relative ones.
    weight = 1 / np.maximum(times, 1e-9)
    ms_per_byte, latency_ms = map(float, np.polyfit(sizes, times, 1, w=weight))
    if ms_per_byte <= 0:
        return math.inf, float(1 / np.mean(weight))
    return 1 / ms_per_byte, max(0.0, latency_ms)


def _round_trip_ms(tvm_device: Any, size: int) -> float:
    array = np.arange(size // 4, dtype=np.int32).view(np.float32)
    tensor = tvm.runtime.empty(array.shape, "float32", tvm_device)

    def round_trip() -> None:
        tensor.copyfrom(array)
        tensor.numpy()

    return median_ms(round_trip)


def median_ms(work: Callable[[], object]) -> float:
    """The median time of some calls, after one for warm-up."""
    work()
    return median(repeated_ms(work, _SIZE_S, least=2, most=_MAX_REPEATS))
