"""Op times inside the whole model, by OpenVINO's performance counters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autosplit.hardware.devices.device import Cores
from autosplit.hardware.profiling.timing import MS, on_cores, repeated_ms
from autosplit.hardware.runtimes.interface import Item
from autosplit.hardware.runtimes.onnx import model_file
from autosplit.hardware.runtimes.onnx.submodels import OnnxModel
from autosplit.hardware.runtimes.onnx.time_shares import LEAST_DISTURBED, ExecutedNode, Samples
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
) -> tuple[Samples, list[ExecutedNode]]:
    """See SubmodelRuntime."""
    arrays = [item[tensor.name] for tensor in submodel.graph.input]
    samples: dict[str, list[float]] = {}
    compiled: Any = None
    with model_file.temporary(submodel) as file:
        for _ in range(_SAMPLES):
            compiled = compile_model(file, cores, precision, PERF_COUNT=True)
            for name, node_ms in _mean_times(compiled, arrays, cores, seconds / _SAMPLES).items():
                samples.setdefault(name, []).append(node_ms)
    return samples, executed_nodes(original, compiled.get_runtime_model())


def executed_nodes(original: OnnxModel, optimised: Any) -> list[ExecutedNode]:
    """The nodes of OpenVINO's runtime model; a tensor there has the name of its node."""
    nodes = []
    for node in optimised.get_ordered_ops():
        name = node.get_friendly_name()
        info = node.get_rt_info()
        # A node is named after its first output. Weights and nodes that OpenVINO adds are unknown.
        names = info[_ORIGINAL_NAMES].astype(str).split(",") if _ORIGINAL_NAMES in info else [name]
        sources = (port.get_source_output().get_node() for port in node.inputs())
        inputs = tuple(source.get_friendly_name() for source in sources)
        outputs = tuple(n for n in names if n in original.producers)
        nodes.append(ExecutedNode(name, inputs, (name,), outputs))
    return nodes


def _mean_times(
    compiled: Any, arrays: Sequence[Any], cores: Cores, seconds: float
) -> dict[str, float]:
    """The milliseconds of each node that is executed, those of the least disturbed rounds."""
    request = compiled.create_infer_request()

    def run() -> None:
        request.infer(arrays, share_inputs=True)

    round_times = on_cores(cores, lambda: repeated_ms(run, seconds))
    # The counters include the first round and rounds that other processes disturbed.
    undisturbed = float(np.quantile(round_times, LEAST_DISTURBED) / np.mean(round_times))
    return {
        node.node_name: undisturbed * node.real_time.total_seconds() * MS
        for node in request.profiling_info
        if node.status.name == "EXECUTED"
    }
