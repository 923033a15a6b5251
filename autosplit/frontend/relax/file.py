"""Reads a Relax module: a TVMScript file, the JSON of ``tvm.ir.save_json``, or an object."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autosplit.errors import ModelError, line_of
from autosplit.extras import relax, s_tir, transform, tvm
from autosplit.frontend.relax import script
from autosplit.frontend.relax.kernel_bounds import bounded_kernels
from autosplit.frontend.relax.main_function import bind_shapes, inlined
from autosplit.frontend.relax.names import source_model
from autosplit.frontend.relax.saved_module import load_harmless
from autosplit.frontend.shapes import Shapes
from autosplit.frontend.source import SourceModel

SUFFIXES = (".py", ".json")


def load(path: Path, shapes: Shapes | None = None) -> SourceModel:
    """Import a Relax file; raises what ``read`` and ``convert`` raise."""
    return convert(read(path), path.stem, shapes)


def read(path: Path) -> Any:
    """The IRModule of a TVMScript (.py) or JSON (.json) file; no code of the file is run.

    Raises:
        ModelError: The file cannot be read, or holds something that is not on the allow-list.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ModelError(f"model '{path}' cannot be read as text: {error}") from error
    try:
        module = load_harmless(text) if path.suffix == ".json" else script.parse(text)
    except ModelError as error:
        raise ModelError(f"model '{path}': {error}") from error
    except ValueError as error:
        raise ModelError(
            f"model '{path}' was not written by tvm.ir.save_json ({error}); save it again"
        ) from error
    if not isinstance(module, tvm.IRModule):
        raise ModelError(
            f"model '{path}' holds a {type(module).__name__}, not a module; save the IRModule"
        )
    return module


def convert(module: Any, name: str, shapes: Shapes | None = None) -> SourceModel:
    """Import a checked IRModule whose function ``main`` is static once ``shapes`` is applied.

    Raises:
        ModelError: The module is not well formed, or ``main`` cannot be split.
        ConfigError: ``shapes`` do not fit its inputs.
    """
    try:
        relax.analysis.well_formed(module)
    except Exception as error:
        raise ModelError(f"the module is not well formed: {line_of(error)}") from error
    try:
        s_tir.analysis.OOBChecker()(module)
    except Exception as error:  # a store outside of a buffer would overwrite the process's memory
        raise ModelError("a kernel of the module reads or writes outside of a buffer") from error
    module = bounded_kernels(bind_shapes(inlined(module), shapes or {}))
    try:
        module = transform.ConvertToDataflow(min_size=1)(transform.Normalize()(module))
    except Exception as error:
        raise ModelError(f"the module cannot be normalised: {line_of(error)}") from error
    return source_model(module, name)
