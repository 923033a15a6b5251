"""Writing ONNX models; large weights go into a file beside the model."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
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


@contextlib.contextmanager
def loadable(model: Any) -> Iterator[Path | bytes]:
    """An ONNX model as a runtime can load it: its bytes, or a temporary file where it is large."""
    if not has_large_weights(model):
        yield model.SerializeToString()
        return
    with tempfile.TemporaryDirectory(prefix="autosplit-stage-") as folder:
        file = Path(folder) / "stage.onnx"
        write(model, file)
        del model  # the runtime reads its own copy of the weights
        yield file


def has_large_weights(model: Any) -> bool:
    """Whether the weights of a model go into a file of their own."""
    weight_bytes = sum(len(w.raw_data) or w.ByteSize() for w in model.graph.initializer)
    return weight_bytes >= EXTERNAL_BYTES
