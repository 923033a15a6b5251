"""Reads a Relax module: the JSON of ``tvm.ir.save_json``, or an object."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autosplit.errors import ModelError, explained
from autosplit.extras import relax, transform, tvm
from autosplit.frontend.relax import saved_module
from autosplit.frontend.relax.main_function import bind_shapes, inlined
from autosplit.frontend.relax.names import MainReader
from autosplit.frontend.shapes import Shapes
from autosplit.frontend.source import SourceModel

SUFFIX = ".json"


def read(path: Path, *, trust_kernels: bool = False) -> Any:
    """Read the IRModule of a JSON file. No code is run: a file that is not trusted must have none.

    Raises:
        ModelError: The file cannot be read, or holds code and is not trusted.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ModelError(f"model '{path}' cannot be read as text: {error}") from error
    try:
        module = saved_module.load(text, trust_kernels=trust_kernels)
    except ModelError as error:
        raise ModelError(f"model '{path}': {error}") from error
    except ValueError as error:
        problem = f"model '{path}' was not written by tvm.ir.save_json ({error}); save it again"
        raise ModelError(problem) from error
    if not isinstance(module, tvm.IRModule):
        problem = f"model '{path}' holds a {type(module).__name__}, not a module; save the IRModule"
        raise ModelError(problem)
    return module


def convert(module: Any, name: str, shapes: Shapes | None = None, batch: int = 1) -> SourceModel:
    """Import an IRModule that ``shapes`` makes static, made to take ``batch`` items at once.

    Raises:
        ModelError: The module is not well formed, or ``main`` cannot be split.
        ConfigError: ``shapes`` do not fit its inputs.
    """
    with explained(ModelError, "the module is not well formed", last=False):
        relax.analysis.well_formed(module)
    module = bind_shapes(inlined(module), shapes or {}, batch)
    with explained(ModelError, "the module cannot be normalised", last=False):
        module = transform.ConvertToDataflow(min_size=1)(transform.Normalize()(module))
    return MainReader(module).read(name)
