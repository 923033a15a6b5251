"""Op times as a runtime takes them without a profiler, which hides or adds some time at each node.

What a call of a stage takes beside its ops is measured with a model of one number. Both matter
where runtimes compete, because each hides another share of its time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from autosplit.hardware.devices.device import Cores
from autosplit.hardware.execution.wiring import Port
from autosplit.hardware.measurement.results import Profile
from autosplit.hardware.runtimes.interface import Stage
from autosplit.hardware.runtimes.onnx.time_shares import LEAST_DISTURBED

SMALLEST = Port("x", (1,), "float32"), Port("y", (1,), "float32")
_MIN_ROUNDS = 5
_LEAST_OPS = 0.1  # share of a run that is left to the ops at least


def smallest_model() -> bytes:
    """A model of one node on one number, with the ports of SMALLEST."""
    from onnx import TensorProto, helper

    tensors = [helper.make_tensor_value_info(p.name, TensorProto.FLOAT, p.shape) for p in SMALLEST]
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    graph = helper.make_graph(nodes, "smallest", tensors[:1], tensors[1:])
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return bytes(model.SerializeToString())


def run_ms(stage: Stage, values: Sequence[Any], cores: Cores, seconds: float) -> float:
    """The time of a run that other processes disturb little; the stage is closed."""

    def measure() -> float:
        stage.open()
        stage.run(values)
        samples: list[float] = []
        deadline = time.perf_counter() + seconds
        while len(samples) < _MIN_ROUNDS or time.perf_counter() < deadline:
            start = time.perf_counter()
            stage.run(values)
            samples.append((time.perf_counter() - start) * 1e3)
        return float(np.quantile(samples, LEAST_DISTURBED, method="lower"))

    with closing(stage), ThreadPoolExecutor(1, "calibrate", cores.bind) as executor:
        return executor.submit(measure).result()


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
