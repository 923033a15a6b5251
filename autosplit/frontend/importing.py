"""Which frontend reads a model: by the suffix of its file, or by what the object is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autosplit.errors import ModelError
from autosplit.frontend.relax import file
from autosplit.frontend.source import Source
from autosplit.frontend.torch import importer

SUFFIXES = (*file.SUFFIXES, importer.SUFFIX)  # any other file is ONNX
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Imported:
    """A model as it was read: ``kind`` is "onnx", "relax" or "torch"; ``program`` the object, None for ONNX."""

    source: Source
    kind: str
    program: Any = None


def read(model: Any, shapes: Shapes) -> Imported:
    """Import a file (a Path) or an object: a TVM IRModule, a ``torch.export.ExportedProgram``.

    A file is TVMScript if it ends in .py, a saved module in .json, a saved exported program in .pt2, and else ONNX.
    Raises ModelError or ConfigError as the frontends do.
    """
    if not isinstance(model, Path):
        return _object(model, shapes)
    if model.suffix in file.SUFFIXES:
        module = file.read(model)
        return Imported(file.convert(module, model.stem, shapes), "relax", module)
    if model.suffix == importer.SUFFIX:
        program = importer.read(model)
        return Imported(importer.convert(program, model.stem, shapes), "torch", program)
    from autosplit.frontend.onnx import importer as onnx_importer

    return Imported(onnx_importer.load(model, shapes), "onnx")


def _object(model: Any, shapes: Shapes) -> Imported:
    import tvm

    if isinstance(model, tvm.IRModule):
        return Imported(file.convert(model, "module", shapes), "relax", model)
    if importer.is_program(model):
        return Imported(importer.convert(model, "program", shapes), "torch", model)
    raise ModelError(
        f"a {type(model).__name__} is no model; give a file, a TVM IRModule or a torch.export.ExportedProgram"
    )
