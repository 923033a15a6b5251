"""Writing ONNX models; large weights go into a file beside the model."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autosplit.extras import onnx
from autosplit.files import refused, replace

EXTERNAL_BYTES = 1 << 30  # from here on weights go into their own file; a protobuf holds 2 GB


def write(model: Any, file: Path) -> Path | None:
    """Write an ONNX model; returns the file of its weights where they are large.

    Raises MachineError where the disk refuses.
    """
    weight_bytes = sum(len(w.raw_data) or w.ByteSize() for w in model.graph.initializer)
    data = file.with_name(file.name + ".data") if weight_bytes >= EXTERNAL_BYTES else None
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


@contextlib.contextmanager
def temporary(model: Any) -> Iterator[Path]:
    """Write an ONNX model to a temporary file, which exists within the block."""
    with tempfile.TemporaryDirectory(prefix="autosplit-stage-") as folder:
        file = Path(folder) / "stage.onnx"
        write(model, file)
        del model  # the runtime reads its own copy of the weights
        yield file
