"""Chooses the frontend for a model: by the suffix of a file, or by the type of an object."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from autosplit.errors import ModelError
from autosplit.extras import tvm
from autosplit.files import open_regular, sha256
from autosplit.frontend.onnx import file as onnx_file
from autosplit.frontend.onnx import importer as onnx_importer
from autosplit.frontend.relax import file
from autosplit.frontend.relax.saved_module import require_data
from autosplit.frontend.shapes import Shapes
from autosplit.frontend.source import SourceModel
from autosplit.frontend.torch import importer

SUFFIXES = (file.SUFFIX, importer.SUFFIX)  # any other file is ONNX


def read(model: Any, shapes: Shapes, *, trust_kernels: bool = False, batch: int = 1) -> SourceModel:
    """Import a file (a Path), a TVM IRModule or a ``torch.export.ExportedProgram``.

    A file is a saved Relax module if it ends in .json, a saved exported program if it ends in .pt2,
    and otherwise ONNX. ``trust_kernels`` allows a module to have its own kernels, which are code.
    The first axis of the inputs is ``batch`` times as long as ``shapes`` and the model say; a Relax
    module with an axis of fixed length takes single items only.

    Raises:
        ModelError: The model cannot be read, cannot be split, or holds code that is not trusted.
        ConfigError: ``shapes`` do not fit the inputs.
    """
    if not isinstance(model, Path):
        return _object(model, shapes, trust_kernels, batch)
    _require_regular_file(model)
    if model.suffix.lower() == ".py":
        raise ModelError(
            f"model '{model}' is Python, which is code and is not read; "
            "convert it to ONNX, or save the Relax module as JSON by tvm.ir.save_json"
        )
    if model.suffix.lower() == file.SUFFIX:
        module = file.read(model, trust_kernels=trust_kernels)
        return file.convert(module, model.stem, shapes, batch)
    if model.suffix.lower() == importer.SUFFIX:
        return importer.convert(importer.read(model), model.stem, shapes, batch)
    return onnx_importer.convert(onnx_file.read(model, shapes, batch), model.stem)


def digest(model: Any) -> str:
    """The sha256 of a Relax module or a model file, or of the digests of a model's several files.

    Raises ModelError for a file that cannot be read, MachineError without the package onnx.
    """
    if not isinstance(model, Path):
        return hashlib.sha256(tvm.ir.save_json(model).encode()).hexdigest()
    try:
        digests = list(map(sha256, model_files(model).values()))
    except OSError as error:
        raise ModelError(f"files of model '{model}' cannot be read: {error.strerror}") from error
    joined = hashlib.sha256("".join(digests).encode()).hexdigest()
    return joined if len(digests) > 1 else digests[0]


def require_unchanged(path: Path, loaded: str) -> None:
    """Raise ModelError for a file whose digest is not that of the model ``loaded`` from it."""
    if digest(path) != loaded:
        raise ModelError(f"model '{path}' has changed since it was loaded; load it again")


def model_files(path: Path) -> dict[str, Path]:
    """The model file, then the files with its weights, by their names relative to its folder.

    Raises as ``digest``.
    """
    files = {path.name: path}
    if path.suffix.lower() not in SUFFIXES:
        files |= dict(sorted(onnx_file.external_files(path).items()))
    return files


def _require_regular_file(path: Path) -> None:
    """Raise ModelError if a path is not a file; opening a pipe would wait for its writer."""
    try:
        open_regular(path).close()
    except (OSError, ValueError) as error:  # ValueError: a null character or a lone surrogate
        reason = error.strerror if isinstance(error, OSError) else error
        text = f"model {str(path)!a} cannot be read: {reason}; give a model file"
        raise ModelError(text) from error


def _object(model: Any, shapes: Shapes, trust_kernels: bool, batch: int) -> SourceModel:
    if isinstance(model, tvm.IRModule):
        if not trust_kernels:
            require_data(model)
        return file.convert(model, "module", shapes, batch)
    if importer.is_program(model):
        return importer.convert(model, "program", shapes, batch)
    raise ModelError(
        f"cannot load a model from a {type(model).__name__}; "
        "give a file, a TVM IRModule or a torch.export.ExportedProgram"
    )
