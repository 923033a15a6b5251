"""A part of a model as a library that runs by itself, with its manifest and an ONNX submodel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autosplit.deploy import manifest as m
from autosplit.deploy import manifest_file
from autosplit.deploy.export import original_onnx, write_stage
from autosplit.errors import ConfigError
from autosplit.hardware.codegen.target import spelled
from autosplit.hardware.devices import device
from autosplit.hardware.execution.wiring import part
from autosplit.versions import environment

if TYPE_CHECKING:
    from autosplit.hardware.compiled_model import CompiledModel


def write_part(model: CompiledModel, ops: Sequence[int], file: Path) -> Path:
    """Write the convex set ``ops`` of a model as the library ``file``; returns the manifest.

    The manifest, that of a split with one stage, has the suffix .json and the ONNX submodel, if
    there is one, .onnx. Raises ConfigError for a file name that one of those needs, MachineError
    where the disk refuses or nothing here can link.
    """
    suffix = model.runtime.suffix
    if file.suffix in (".json", "") or (file.suffix == ".onnx") != (suffix == ".onnx"):
        raise ConfigError(
            f"the part cannot be written to '{file}', whose name its manifest needs; "
            f"name it {file.stem}{suffix}"
        )
    wiring = part(model.graph, ops, model.lowered.outputs)
    # Only its target counts: the part runs wherever it is loaded.
    place = device.along(1)[0]
    stage = write_stage(model, wiring.stages[0], file, 0, place, original_onnx(model))
    document = m.Manifest(
        model=m.ModelPart(
            name=f"{model.graph.name}/{file.stem}",
            # ``verify`` compares with the ONNX submodel: the whole model has other outputs.
            sha256=stage.onnx.sha256 if stage.onnx else model.sha256,
            inputs=m.tensor_ports(wiring.inputs),
            outputs=m.tensor_ports(wiring.outputs),
            file=str(file.with_suffix(".onnx").resolve()) if stage.onnx else None,
            dtypes=tuple(sorted(model.lowered.dtypes)),
        ),
        stages=(stage,),
        connections=tuple(map(m.ConnectionPart.of, wiring.connections)),
        environment=environment() | {"target": spelled(model.target)},
    )
    manifest_file.write(document, file.with_suffix(".json"))
    return file.with_suffix(".json")
