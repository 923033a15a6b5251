"""Calibration of op times, because a profiler hides or adds some time at each node.

The time of a stage call beside its ops is measured with a model of one number. Both matter where
runtimes compete, because the hidden share of the time differs between them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from autosplit.hardware.devices.device import Cores
from autosplit.hardware.execution.wiring import Port, StagePorts
from autosplit.hardware.measurement.results import Profile
from autosplit.hardware.profiling.timing import on_cores, repeated_ms
from autosplit.hardware.runtimes.interface import Stage
from autosplit.hardware.runtimes.onnx.time_shares import LEAST_DISTURBED

SMALLEST = StagePorts((), (Port("x", (1,), "float32"),), (Port("y", (1,), "float32"),))
_LEAST_OPS = 0.1  # share of a run that is left to the ops at least


def smallest_model() -> bytes:
    """A model of one node on one number, with the ports of SMALLEST."""
    from onnx import parser

    header, body = '<ir_version: 8, opset_import: ["": 17]>', "{y = Relu(x)}"
    model = parser.parse_model(f"{header} smallest (float[1] x) => (float[1] y) {body}")
    return bytes(model.SerializeToString())


def run_ms(stage: Stage, values: Sequence[Any], cores: Cores, seconds: float) -> float:
    """The time of a run that other processes disturb little; the stage is closed."""

    def measure() -> list[float]:
        stage.open()
        return repeated_ms(lambda: stage.run(values), seconds)

    with closing(stage):
        samples = on_cores(cores, measure)
    return float(np.quantile(samples[1:], LEAST_DISTURBED, method="lower"))


def calibrated(profile: Profile, whole_ms: float, call_ms: float) -> Profile:
    """The profile whose ops and one call add up to what the whole model takes."""
    total = math.fsum(profile.op_ms)
    ops_ms = max(whole_ms - call_ms, _LEAST_OPS * whole_ms)
    factor = ops_ms / total if total else 1.0
    return replace(
        profile,
        op_ms=tuple(factor * ms for ms in profile.op_ms),
        spread_ms=tuple(factor * ms for ms in profile.spread_ms),
        call_ms=call_ms,
    )
