"""Op times inside the whole model, by onnxruntime's profiler.

The optimised graph that onnxruntime saves tells which tensors of the original each node makes.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from autosplit.extras import onnx
from autosplit.hardware.devices.device import Cores
from autosplit.hardware.profiling.timing import on_cores, repeated_ms
from autosplit.hardware.runtimes.interface import Item
from autosplit.hardware.runtimes.onnx import model_file
from autosplit.hardware.runtimes.onnx.submodels import OnnxModel
from autosplit.hardware.runtimes.onnx.time_shares import ExecutedNodes, Samples
from autosplit.hardware.runtimes.onnxruntime.session import session_on

_US_PER_MS = 1e3
_MAX_EVENTS = 100_000  # parsing more takes longer than the rounds; onnxruntime stores a million
_KERNEL = "_kernel_time"
_BLOCKED = "_nchwc"  # a node that makes tensor x in blocks of channels is called x_nchwc


def time_nodes(
    original: OnnxModel, submodel: Any, item: Item, cores: Cores, seconds: float
) -> tuple[Samples, ExecutedNodes]:
    """See SubmodelRuntime."""
    with tempfile.TemporaryDirectory(prefix="autosplit-profile-") as folder:
        samples = _run_rounds(submodel, item, cores, Path(folder), seconds)
        optimised = onnx.load(str(Path(folder, "optimised.onnx")), load_external_data=False)
        return samples, executed_nodes(original, optimised)


def executed_nodes(original: OnnxModel, optimised: Any) -> ExecutedNodes:
    """The nodes of the optimised ONNX graph."""
    nodes = {}
    for node in optimised.graph.node:
        names = [tensor for tensor in node.output if tensor]
        if len(names) == 1 and names[0] not in original.producers:
            # The tensor of the original, in another layout.
            names = [str(node.name).removesuffix(_BLOCKED)]
        # A node with an output of its own making is no part of the original.
        nodes[node.name] = names if all(name in original.producers for name in names) else []
    return nodes


def _run_rounds(
    submodel: Any, item: Item, cores: Cores, folder: Path, seconds: float
) -> dict[str, list[float]]:
    """The milliseconds of each node by round, without the first round, which is a warm-up."""
    model = folder / "model.onnx"
    model_file.write(submodel, model)
    entries = {
        "session.optimized_model_external_initializers_file_name": "weights.bin",
        "session.optimized_model_external_initializers_min_size_in_bytes": "1024",
    }
    session = session_on(
        model,
        cores,
        entries,
        enable_profiling=True,
        profile_file_prefix=str(folder / "profile"),
        optimized_model_filepath=str(folder / "optimised.onnx"),
    )
    feed = {i.name: item[i.name] for i in session.get_inputs()}
    max_rounds = _MAX_EVENTS // (len(submodel.graph.node) + 2)

    on_cores(cores, lambda: repeated_ms(lambda: session.run(None, feed), seconds, most=max_rounds))
    samples: dict[str, list[float]] = {}
    for event in json.loads(Path(session.end_profiling()).read_text(encoding="utf-8")):
        if event.get("cat") == "Node" and event["name"].endswith(_KERNEL):
            name = event["name"].removesuffix(_KERNEL)
            samples.setdefault(name, []).append(event["dur"] / _US_PER_MS)
    return {name: durations[1:] for name, durations in samples.items()}
