"""A PyTorch program exported by ``torch.export`` as a source, its nodes by the names torch gave them.

Torch rewrites the program first: in-place ops become functional, ops that TVM's importer lacks are decomposed. Each node
of the rewritten graph says which node of the program it came from, and its result goes by that node's name.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from autosplit.errors import ModelError, line_of
from autosplit.extras import require
from autosplit.frontend.relax.shapes import Shapes, bind_shapes
from autosplit.frontend.source import Signature, SourceModel, mark
from autosplit.frontend.torch import archive as torch_archive
from autosplit.frontend.torch.decompose import functional, user
from autosplit.frontend.torch.origins import Origins

SUFFIX = ".pt2"


def is_program(value: Any) -> bool:
    """Whether an object is an exported program."""
    kind = type(value)
    return kind.__name__ == "ExportedProgram" and kind.__module__.startswith("torch.export")


def read(path: Path) -> Any:
    """The exported program of a .pt2 file. Raises ModelError where it holds more than a graph and tensors.

    ``torch.export.load`` unpickles and evaluates parts of such a file; it is only given what neither happens to.
    """
    torch = require("torch", "torch")
    with torch_archive.cleaned(path) as archive:
        try:
            with _quiet():
                return torch.export.load(archive)
        except Exception as error:
            raise ModelError(f"model '{path}' cannot be read by torch: {line_of(error)}") from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No log of torch, which writes the traceback of an error before it raises it."""
    log = logging.getLogger("torch.export")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(level)


def convert(program: Any, name: str, shapes: Shapes | None = None) -> SourceModel:
    """Import an exported program; ``shapes`` binds its dynamic dimensions. Raises ModelError or ConfigError."""
    require("torch", "torch")
    rewritten = functional(program)
    names = [s.arg.name for s in user(program.graph_signature.input_specs)]
    origins = Origins(program.graph, rewritten.graph)
    importer, module = _import(rewritten, origins.called)
    module = bind_shapes(module, shapes or {})
    table = importer.env
    params = {p.name: p for p in module["main"].params}
    return SourceModel(
        name=name,
        module=module,
        nodes=origins.nodes(),
        tensors=tuple(table.tensors),
        alias=dict(table.alias),
        constants=frozenset(table.constants),
        inputs=tuple(
            Signature(
                n, tuple(int(s.value) for s in params[n].ty.shape.values), str(params[n].ty.dtype)
            )
            for n in names
        ),
        outputs=_unique([_output_name(s) for s in user(program.graph_signature.output_specs)]),
        format="torch",
        program=program,
    )


def outputs(source: SourceModel, item: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """What torch computes for one item, by output name. Raises ModelError where it refuses."""
    torch = require("torch", "torch")
    program = source.program
    pytree = torch.utils._pytree
    leaves = [torch.from_numpy(np.array(item[i.name])) for i in source.inputs]
    try:
        with torch.no_grad():
            args, kwargs = pytree.tree_unflatten(leaves, program.call_spec.in_spec)
            found = pytree.tree_leaves(program.module()(*args, **kwargs))
    except Exception as error:
        raise ModelError(f"torch cannot run the program: {line_of(error)}") from error
    return {name: _array(value.detach()) for name, value in zip(source.outputs, found, strict=True)}


def _array(tensor: Any) -> np.ndarray[Any, Any]:
    """A tensor of torch, which has no arrays of bfloat16; TVM has."""
    import tvm

    plain = str(tensor.dtype) != "torch.bfloat16"
    return np.asarray((tensor if plain else tvm.runtime.from_dlpack(tensor.contiguous())).numpy())


def _of_dtype(node: Any, value: Any) -> Any:
    """A result in torch's type: one that the importer computed in float32 is rounded, any other was read wrongly."""
    from tvm import relax

    meant, found = (
        getattr(node.meta.get("val"), "dtype", None),
        getattr(getattr(value, "ty", None), "dtype", None),
    )
    if (
        node.op != "call_function"
        or meant is None
        or found is None
        or not isinstance(value.ty, relax.TensorType)
    ):
        return value
    wanted, got = str(meant).removeprefix("torch."), str(found)
    if wanted == got:
        return value
    if wanted in ("float16", "bfloat16") and got == "float32":
        return relax.op.astype(value, wanted)
    raise ModelError(f"TVM's importer makes {got} of its type, torch {wanted}")


def _require_shape(node: Any, value: Any) -> None:
    """A result of another shape than torch's was read wrongly."""
    meant = getattr(node.meta.get("val"), "shape", None)
    found = getattr(getattr(getattr(value, "ty", None), "shape", None), "values", None)
    if meant is None or found is None or node.op != "call_function":
        return
    pairs = [
        (m, int(f.value))
        for m, f in zip(meant, found, strict=False)
        if isinstance(m, int) and hasattr(f, "value")
    ]
    if len(meant) != len(found) or any(m != f for m, f in pairs):
        raise ModelError(
            f"TVM's importer makes {[getattr(f, 'value', f) for f in found]} of its shape, torch one of {list(meant)}"
        )


def _import(program: Any, called: Mapping[str, str]) -> tuple[Any, Any]:
    importer = _importer(called)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importer, importer.from_exported_program(program, False, True, False, None)
    except Exception as error:
        at = f"node '{importer.env.at}" if importer.env.at else "the program"
        raise ModelError(f"{at} cannot be imported: {line_of(error)}") from error


class _Table(dict[Any, Any]):
    """The importer's values by node; emits each under the mark of the node's tensor."""

    def __init__(self, importer: Any, called: Mapping[str, str]) -> None:
        super().__init__()
        self._importer = importer
        self._called = called
        self.tensors: list[str] = []
        self.alias: dict[str, str] = {}
        self.constants: set[str] = set()
        self._holds: dict[Any, str] = {}
        self.at = ""

    def name_of(self, node: Any) -> str:
        """The tensor of the program that a node of the rewritten graph makes."""
        return self._called.get(node.name, node.name)

    def __setitem__(self, node: Any, value: Any) -> None:
        from tvm import relax

        name = self.name_of(node)
        _require_shape(node, value)
        value = _of_dtype(node, value)
        super().__setitem__(
            node, self._marked(name, value) if node.op == "call_function" else value
        )
        if node.op == "placeholder" and isinstance(value, relax.Var):
            self._holds[value] = node.name

    def _marked(self, name: str, value: Any) -> Any:
        from tvm import relax

        if isinstance(value, relax.Var) and self._holds.get(value) == name:
            return value  # the importer enters some values twice
        if isinstance(value, relax.Var) and value in self._holds:
            self.alias[name] = self._holds[value]
            return value
        if not isinstance(value, relax.Expr) or not isinstance(
            getattr(value, "ty", None), relax.TensorType
        ):
            return value
        if not isinstance(value, relax.Var | relax.Call | relax.TupleGetItem):
            self.constants.add(name)
            return value
        value = self._importer.block_builder.emit(value, name_hint=mark(len(self.tensors)))
        self.tensors.append(name)
        self._holds[value] = name
        return value


def _importer(called: Mapping[str, str]) -> Any:
    """The importer; ``called`` names the tensor that each node of the rewritten graph makes."""
    from tvm import relax
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

    class Importer(ExportedProgramImporter):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.env = _Table(self, called)
            converters: dict[str, Callable[..., Any]] = self.create_convert_map()
            self.convert_map = {name: self._noting(convert) for name, convert in converters.items()}

        def _noting(self, convert: Callable[..., Any]) -> Callable[..., Any]:
            def converted(node: Any, *rest: Any) -> Any:
                self.env.at = f"{self.env.name_of(node)}' ({node.target})"
                return convert(node, *rest)

            return converted

        def _upsample_impl(
            self, x: Any, size: Any, scale_factor: Any, method: str, align_corners: Any
        ) -> Any:
            if method != "nearest_neighbor" or size is None:
                return super()._upsample_impl(x, size, scale_factor, method, align_corners)
            return self.block_builder.emit(
                relax.op.image.resize2d(x, size, None, "NCHW", method, "asymmetric", "floor")
            )

    return Importer()


def _output_name(spec: Any) -> str:
    if type(spec.arg).__name__ != "TensorArgument":
        raise ModelError(
            f"output '{getattr(spec.arg, 'name', spec.arg)}' is no tensor; return tensors alone"
        )
    return str(spec.arg.name)


def _unique(names: list[str]) -> tuple[str, ...]:
    """Names of results that the program returns twice are numbered."""
    count: Counter[str] = Counter()
    found = []
    for name in names:
        count[name] += 1
        found.append(name if count[name] == 1 else f"{name}.{count[name]}")
    return tuple(found)
