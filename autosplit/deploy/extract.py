"""Writing a part of a model so that it runs by itself: a library, a manifest beside it, and an ONNX submodel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autosplit.deploy import export as whole_export
from autosplit.deploy import manifest as m
from autosplit.deploy.environment import environment
from autosplit.deploy.manifest import tensor
from autosplit.errors import ConfigError
from autosplit.hardware.codegen.target import spelled
from autosplit.hardware.devices import device
from autosplit.hardware.runtimes.onnxruntime import submodels
from autosplit.hardware.runtimes.runtime import TVM

if TYPE_CHECKING:
    from autosplit.api import Part


def export(part: Part, file: Path) -> Path:
    """Write the library ``file``, the manifest with the suffix .json and the ONNX submodel with .onnx, if there is one.

    The manifest is that of a split with one stage. Raises ConfigError for a file name that one of those would take,
    MachineError where the disk refuses or nothing here can link.
    """
    model, wiring = part.model, part.wiring
    suffix = model.runtime.suffix
    if file.suffix in (".json", "") or (file.suffix == ".onnx") != (suffix == ".onnx"):
        raise ConfigError(
            f"the part cannot be written to '{file}', whose name its manifest needs; name it {file.stem}{suffix}"
        )
    (ports,) = wiring.stages
    original = submodels.whole(model) if model.runtime_name == TVM else None
    stage = whole_export.stage_part(model, ports, file, 0, device.along(1)[0], original)
    document = m.Manifest(
        model=m.ModelPart(
            name=f"{model.graph.name}/{file.stem}",
            sha256=stage.onnx.sha256 if stage.onnx else model.sha256,
            inputs=whole_export.port_parts(wiring.inputs),
            outputs=whole_export.port_parts(wiring.outputs),
            file=str(file.with_suffix(".onnx").resolve()) if stage.onnx else None,
            dtypes=tuple(sorted(model.lowered.dtypes)),
        ),
        stages=(stage,),
        connections=tuple(map(whole_export.connection_part, wiring.connections)),
        environment=environment() | {"target": spelled(model.target)},
    )
    document.write(file.with_suffix(".json"))
    return file.with_suffix(".json")


def document(part: Part, manifest: Path | None) -> dict[str, Any]:
    """The document of ``extract -f json``: what is in the part, what it reads and makes, the files written."""
    graph, wiring = part.model.graph, part.wiring
    written = m.read(manifest).stages[0] if manifest else None
    return {
        "model": graph.name,
        "ops": [
            {"name": graph.ops[i].name, "sources": list(graph.ops[i].sources)} for i in part.ops
        ],
        "inputs": [tensor(graph, p.name) for p in wiring.inputs],
        "outputs": [tensor(graph, p.name) for p in wiring.outputs],
        "manifest": str(manifest) if manifest else None,
        "file": str(manifest.parent / written.file) if manifest and written else None,
        "onnx": str(manifest.parent / written.onnx.file)
        if manifest and written and written.onnx
        else None,
        "onnx_absent": written.onnx_absent if written else None,
    }


def rows(found: dict[str, Any]) -> Iterator[tuple[object, ...]]:
    """One row a tensor at the boundary: read or made, name, shape, dtype, bytes."""
    for side, tensors in (("reads", found["inputs"]), ("makes", found["outputs"])):
        for each in tensors:
            yield (
                side,
                each["name"],
                "x".join(map(str, each["shape"])) or "scalar",
                each["dtype"],
                each["bytes"],
            )
