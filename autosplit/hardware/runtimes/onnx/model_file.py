"""Writing ONNX models; large weights go into a file beside the model."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from autosplit.files import refused, replace

EXTERNAL_BYTES = 1 << 30  # from here on weights go into their own file; a protobuf holds 2 GB


def write(model: Any, file: Path) -> Path | None:
    """Write an ONNX model; returns the file of its weights where they are large.

    Raises MachineError where the disk refuses.
    """
    import onnx

    data = file.with_name(file.name + ".data") if has_large_weights(model) else None
    options: dict[str, Any] = {}
    if data:
        options = {"save_as_external_data": True, "location": data.name, "size_threshold": 1024}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent, prefix=".onnx-") as folder:
            temporary = Path(folder) / file.name
            onnx.save_model(model, str(temporary), **options)
            if data:
                replace(Path(folder) / data.name, data)
            replace(temporary, file)
    except OSError as error:
        raise refused(file, error) from error
    return data


def has_large_weights(model: Any) -> bool:
    """Whether the weights of a model go into a file of their own."""
    weight_bytes = sum(len(w.raw_data) or w.ByteSize() for w in model.graph.initializer)
    return weight_bytes >= EXTERNAL_BYTES
