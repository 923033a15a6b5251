"""Op times inside the whole model, by OpenVINO's performance counters."""

from __future__ import annotations

from typing import Any

from autosplit.hardware.devices.device import Cores
from autosplit.hardware.profiling.timing import MS, on_cores, repeated_ms
from autosplit.hardware.runtimes.interface import Item
from autosplit.hardware.runtimes.onnx import model_file
from autosplit.hardware.runtimes.onnx.submodels import OnnxModel
from autosplit.hardware.runtimes.onnx.time_shares import ExecutedNodes, Samples
from autosplit.hardware.runtimes.openvino.stage import Precision, compile_model

# A counter is the mean of all runs of a compiled model, so each sample needs a model of its own.
_SAMPLES = 3
_ORIGINAL_NAMES = "originalLayersNames"


def time_nodes(
    original: OnnxModel,
    submodel: Any,
    item: Item,
    cores: Cores,
    seconds: float,
    precision: Precision = "f32",
) -> tuple[Samples, ExecutedNodes]:
    """See SubmodelRuntime."""
    arrays = [item[tensor.name] for tensor in submodel.graph.input]
    samples: dict[str, list[float]] = {}
    compiled: Any = None

    def infer_for(seconds: float) -> Any:
        request = compiled.create_infer_request()
        repeated_ms(lambda: request.infer(arrays, share_inputs=True), seconds)
        return request

    with model_file.temporary(submodel) as file:
        for _ in range(_SAMPLES):
            compiled = compile_model(file, cores, precision, PERF_COUNT=True)
            request = on_cores(cores, lambda: infer_for(seconds / _SAMPLES))
            for node in request.profiling_info:
                if node.status.name == "EXECUTED":
                    node_ms = node.real_time.total_seconds() * MS
                    samples.setdefault(node.node_name, []).append(node_ms)
    return samples, executed_nodes(original, compiled.get_runtime_model())


def executed_nodes(original: OnnxModel, optimised: Any) -> ExecutedNodes:
    """The nodes of OpenVINO's runtime model, each named after the first tensor that it makes."""
    nodes = {}
    for node in optimised.get_ordered_ops():
        name, info = node.get_friendly_name(), node.get_rt_info()
        # Weights and nodes that OpenVINO adds make no tensor of the original.
        names = info[_ORIGINAL_NAMES].astype(str).split(",") if _ORIGINAL_NAMES in info else [name]
        nodes[name] = [n for n in names if n in original.producers]
    return nodes
