"""Imports a program of ``torch.export`` as a source model, its nodes under torch's names.

Torch rewrites the program first: in-place ops become functional, ops that TVM's importer lacks are
decomposed. Each node of the rewritten graph tells which node of the program it came from, and its
result has that node's name.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from autosplit.errors import ModelError, line_of
from autosplit.extras import require
from autosplit.frontend.relax.main_function import bind_shapes
from autosplit.frontend.shapes import Shapes
from autosplit.frontend.source import Signature, SourceModel
from autosplit.frontend.torch.archive import without_code
from autosplit.frontend.torch.decompose import functional, user
from autosplit.frontend.torch.origins import Origins
from autosplit.frontend.torch.value_table import ValueTable

SUFFIX = ".pt2"


def is_program(value: Any) -> bool:
    """Whether an object is an exported program."""
    kind = type(value)
    return kind.__name__ == "ExportedProgram" and kind.__module__.startswith("torch.export")


def read(path: Path) -> Any:
    """The exported program of a .pt2 file. Raises ModelError for more than a graph and tensors.

    ``torch.export.load`` unpickles and evaluates parts of such a file; it gets a copy without them.
    """
    torch = require("torch", "torch")
    with without_code(path) as archive:
        try:
            with _quiet():
                return torch.export.load(archive)
        except Exception as error:
            raise ModelError(f"model '{path}' cannot be read by torch: {line_of(error)}") from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the log of torch, which writes the traceback of an error before it raises it."""
    log = logging.getLogger("torch.export")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(level)


def convert(program: Any, name: str, shapes: Shapes | None = None) -> SourceModel:
    """Import an exported program.

    Raises:
        ModelError: The program cannot be imported.
        ConfigError: ``shapes``, which bind dynamic dimensions, do not fit the inputs.
    """
    require("torch", "torch")
    rewritten = functional(program)
    origins = Origins(program.graph, rewritten.graph)
    table, module = _import(rewritten, origins.tensor_of)
    module = bind_shapes(module, shapes or {})
    params = {p.name: p for p in module["main"].params}
    input_names = [s.arg.name for s in user(program.graph_signature.input_specs)]
    return SourceModel(
        name=name,
        module=module,
        nodes=origins.nodes(),
        tensors=tuple(table.tensors),
        alias=dict(table.alias),
        constants=frozenset(table.constants),
        inputs=tuple(_signature(params[n]) for n in input_names),
        outputs=_unique([_output_name(s) for s in user(program.graph_signature.output_specs)]),
        format="torch",
        program=program,
    )


def _signature(param: Any) -> Signature:
    shape = tuple(int(size.value) for size in param.ty.shape.values)
    return Signature(param.name, shape, str(param.ty.dtype))


def outputs(source: SourceModel, item: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """What torch computes for one item, by output name. Raises ModelError if torch refuses."""
    torch = require("torch", "torch")
    program, pytree = source.program, torch.utils._pytree
    leaves = [torch.from_numpy(np.array(item[i.name])) for i in source.inputs]
    try:
        with torch.no_grad():
            args, kwargs = pytree.tree_unflatten(leaves, program.call_spec.in_spec)
            results = pytree.tree_leaves(program.module()(*args, **kwargs))
    except Exception as error:
        raise ModelError(f"torch cannot run the program: {line_of(error)}") from error
    return {n: _array(value.detach()) for n, value in zip(source.outputs, results, strict=True)}


def _array(tensor: Any) -> np.ndarray[Any, Any]:
    """A tensor of torch as an array. Torch has no arrays of bfloat16; TVM has."""
    import tvm

    if str(tensor.dtype) == "torch.bfloat16":
        tensor = tvm.runtime.from_dlpack(tensor.contiguous())
    return np.asarray(tensor.numpy())


def _import(program: Any, tensor_of: Mapping[str, str]) -> tuple[ValueTable, Any]:
    importer = _importer(tensor_of)
    table: ValueTable = importer.env
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return table, importer.from_exported_program(program, False, True, False, None)
    except Exception as error:
        place = f"node {table.current}" if table.current else "the program"
        raise ModelError(f"{place} cannot be imported: {line_of(error)}") from error


def _importer(tensor_of: Mapping[str, str]) -> Any:
    """TVM's importer; ``tensor_of`` names the tensor of each node of the rewritten graph."""
    from tvm import relax
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

    class Importer(ExportedProgramImporter):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.env = ValueTable(self, tensor_of)
            converters = self.create_convert_map()
            self.convert_map = {n: self.env.noting(c) for n, c in converters.items()}

        def _upsample_impl(
            self, x: Any, size: Any, scale_factor: Any, method: str, align_corners: Any
        ) -> Any:
            # Torch takes the nearest pixel by rounding down; TVM's importer rounds.
            if method != "nearest_neighbor" or size is None:
                return super()._upsample_impl(x, size, scale_factor, method, align_corners)
            return self.block_builder.emit(
                relax.op.image.resize2d(x, size, None, "NCHW", method, "asymmetric", "floor")
            )

    return Importer()


def _output_name(spec: Any) -> str:
    if type(spec.arg).__name__ != "TensorArgument":
        raise ModelError(
            f"output '{getattr(spec.arg, 'name', spec.arg)}' is not a tensor; return tensors only"
        )
    return str(spec.arg.name)


def _unique(names: list[str]) -> tuple[str, ...]:
    """Numbers the names of results that the program returns twice."""
    count: Counter[str] = Counter()
    unique = []
    for name in names:
        count[name] += 1
        unique.append(name if count[name] == 1 else f"{name}.{count[name]}")
    return tuple(unique)
