"""An extracted part of a model: the document of ``extract``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autosplit.deploy import manifest_file
from autosplit.report.documents.inspection import op_names, shape_text, tensor
from autosplit.report.documents.table import Table
from autosplit.units import counted, size

if TYPE_CHECKING:
    from autosplit.api import Part


def document(part: Part, manifest: Path | None) -> dict[str, Any]:
    """The document of ``extract -f json``: ops and boundary of the part, and the files written."""
    graph, wiring = part.model.graph, part.wiring
    files: dict[str, str | None] = dict.fromkeys(("manifest", "file", "onnx", "onnx_absent"))
    if manifest:
        stage = manifest_file.read(manifest).stages[0]
        files["manifest"] = str(manifest)
        files["file"] = str(manifest.parent / stage.file)
        files["onnx"] = str(manifest.parent / stage.onnx.file) if stage.onnx else None
        files["onnx_absent"] = stage.onnx_absent
    return {
        "model": graph.name,
        "ops": op_names([graph.ops[i] for i in part.ops]),
        "inputs": [tensor(graph, port.name) for port in wiring.inputs],
        "outputs": [tensor(graph, port.name) for port in wiring.outputs],
        **files,
    }


def shown(document: dict[str, Any]) -> Iterator[str | Table]:
    """What ``extract`` prints: the ops, a row per tensor at the boundary, and the files."""
    op_names = ", ".join(op["name"] for op in document["ops"])
    rows = []
    for direction, side in (("reads", "inputs"), ("makes", "outputs")):
        for value in document[side]:
            shape = shape_text(value["shape"])
            rows.append((direction, value["name"], shape, value["dtype"], size(value["bytes"])))
    title = f"{document['model']}: {counted(len(document['ops']), 'fused op')}: {op_names}"
    yield Table(title, ("", "tensor", "shape", "dtype", "size"), rows)
    yield from (document[key] for key in ("file", "manifest", "onnx") if document[key])
    if document["onnx_absent"]:
        yield f"no ONNX submodel: {document['onnx_absent']}"
