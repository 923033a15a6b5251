"""The wiring of the stages' ONNX models, in the shape of onnxruntime-genai's pipeline section."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from autosplit.deploy.manifest import Manifest
from autosplit.deploy.manifest_wiring import wired
from autosplit.deployment import cores_of
from autosplit.errors import ConfigError
from autosplit.hardware.execution.stage_spec import StageSpec

WIRING = "pipeline.json"
PROGRAM = "run.py"


def files(document: Manifest, _: Path) -> Mapping[str, bytes]:
    """The wiring file and a program that runs it.

    Raises ConfigError naming the first stage that has no ONNX model.
    """
    text = json.dumps(wiring(document), indent=1) + "\n"
    return {WIRING: text.encode(), PROGRAM: (Path(__file__).parent / "onnx" / PROGRAM).read_bytes()}


def wiring(document: Manifest) -> dict[str, Any]:
    """Files and tensor names of the stages; tensors of one name are the same.

    ``outputs`` pairs each output of the model with its tensor.
    """
    sizes = {connection.tensor: connection.bytes for connection in document.connections}
    tensors = {name: c.tensor for c in wired(document).connections for name in c.outputs}
    # Inputs that are not connected to anything are left out.
    inputs = [port for port in document.model.inputs if port.name in sizes]
    return {
        "pipeline": [{f"stage{stage.index}": _entry(stage)} for stage in document.stages],
        "inputs": [vars(port) | {"bytes": sizes[port.name]} for port in inputs],
        "outputs": [{"name": p.name, "tensor": tensors[p.name]} for p in document.model.outputs],
        "states": [asdict(state) for stage in document.stages for state in stage.states],
    }


def _entry(stage: StageSpec) -> dict[str, Any]:
    if stage.onnx is None:
        raise ConfigError(
            f"stage {stage.index} has no ONNX file: {stage.onnx_absent}; "
            "cut elsewhere, or export with --format native or cpp"
        )
    threads = max(1, *(len(cores_of(replica.device)) for replica in stage.replicas))
    return {
        "filename": stage.onnx.file,
        "inputs": [port.name for port in stage.inputs],
        "outputs": [port.name for port in stage.outputs],
        "session_options": {"intra_op_num_threads": threads},
        "replicas": len(stage.replicas),
    }
