"""A PyTorch program exported by ``torch.export`` as a source, its nodes by the names torch gave them.

Ops that TVM's importer knows are kept as they are; only the others are decomposed, so that names survive.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from autosplit.errors import MachineError, ModelError
from autosplit.frontend import relax_file, torch_archive
from autosplit.frontend.source import Signature, Source, SourceNode, mark

SUFFIX = ".pt2"
Shapes = Mapping[str, tuple[int, ...]]


def is_program(value: Any) -> bool:
    """Whether an object is an exported program."""
    kind = type(value)
    return kind.__name__ == "ExportedProgram" and kind.__module__.startswith("torch.export")


def read(path: Path) -> Any:
    """The exported program of a .pt2 file. Raises ModelError where it holds more than a graph and tensors.

    ``torch.export.load`` unpickles and evaluates parts of such a file; it is only given what neither happens to.
    """
    torch = import_torch()
    with torch_archive.cleaned(path) as archive:
        try:
            return torch.export.load(archive)
        except Exception as error:
            raise ModelError(f"model '{path}' cannot be read by torch: {_reason(error)}") from error


def convert(program: Any, name: str, shapes: Shapes | None = None) -> Source:
    """Import an exported program; ``shapes`` binds its dynamic dimensions. Raises ModelError or ConfigError."""
    import_torch()
    program = _functional(program)
    names = [s.arg.name for s in _user(program.graph_signature.input_specs)]
    importer, module = _import(program)
    module = relax_file.bind_shapes(module, dict(shapes or {}))
    table = importer.env
    params = {p.name: p for p in module["main"].params}
    return Source(
        name=name,
        module=module,
        nodes=_nodes(program.graph),
        tensors=tuple(table.tensors),
        alias=dict(table.alias),
        constants=frozenset(table.constants),
        inputs=tuple(
            Signature(n, tuple(int(s.value) for s in params[n].ty.shape.values), str(params[n].ty.dtype)) for n in names
        ),
        outputs=_unique([_output_name(s) for s in _user(program.graph_signature.output_specs)]),
    )


def outputs(program: Any, source: Source, item: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """What torch computes for one item, by output name. Raises ModelError where it refuses."""
    torch = import_torch()
    leaves = [torch.from_numpy(np.array(item[i.name])) for i in source.inputs]
    try:
        with torch.no_grad():
            args, kwargs = torch.utils._pytree.tree_unflatten(leaves, program.call_spec.in_spec)
            found = torch.utils._pytree.tree_leaves(program.module()(*args, **kwargs))
    except Exception as error:
        raise ModelError(f"torch cannot run the program: {_reason(error)}") from error
    return {name: value.detach().numpy() for name, value in zip(source.outputs, found, strict=True)}


def import_torch() -> Any:
    """The torch package; MachineError with the remedy where it is missing."""
    try:
        import torch
        import torch.export
        import torch.utils._pytree
    except ImportError as error:
        raise MachineError(f"reading PyTorch needs torch ({error}); pip install 'autosplit[torch]'") from error
    return torch


def _user(specs: Any) -> list[Any]:
    """The inputs the caller gives, or the outputs the caller gets; buffers that a program updates are neither."""
    return [s for s in specs if s.kind.name in ("USER_INPUT", "USER_OUTPUT")]


def _functional(program: Any) -> Any:
    """The program without in-place ops, and with ops that the importer does not know decomposed."""
    import torch
    from torch.export import default_decompositions
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

    known = set(ExportedProgramImporter().convert_map)
    for spec in _user(program.graph_signature.input_specs):
        if type(spec.arg).__name__ != "TensorArgument":
            raise ModelError(f"input '{spec.arg.name}' is no tensor; export the program with tensors as inputs alone")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = {op: how for op, how in default_decompositions().items() if _target(op) not in known}
        try:
            program = program.run_decompositions(table)
        except Exception as error:
            raise ModelError(f"torch cannot decompose the program: {_reason(error)}") from error
    for node in program.graph.nodes:
        if node.op == "call_function" and isinstance(node.target, torch._ops.HigherOrderOperator):
            raise ModelError(
                f"node '{node.name}' is control flow ({node.target}), which cannot be split; export without"
            )
        if node.op == "call_function" and _target(node.target) not in known:
            raise ModelError(f"op {node.target} of node '{node.name}' is not supported by TVM's importer; replace it")
    return program


def _target(op: Any) -> str:
    return str(getattr(op, "__name__", op))


def _import(program: Any) -> tuple[Any, Any]:
    importer = _importer()
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importer, importer.from_exported_program(program, False, True, False, None)
    except Exception as error:
        at = f"node '{importer.env.last}'" if importer.env.last else "the program"
        raise ModelError(f"{at} or the one after it cannot be imported: {_reason(error)}") from error


def _importer() -> Any:
    from torch import fx
    from tvm import relax
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

    class Table(dict[Any, Any]):
        """The importer's values by node; emits each under the mark of the node's tensor."""

        def __init__(self, importer: Any) -> None:
            super().__init__()
            self._importer = importer
            self.tensors: list[str] = []
            self.alias: dict[str, str] = {}
            self.constants: set[str] = set()
            self._holds: dict[Any, str] = {}
            self.last = ""

        def __setitem__(self, node: Any, value: Any) -> None:
            self.last = node.name
            super().__setitem__(node, self._marked(node, value) if node.op == "call_function" else value)
            if node.op == "placeholder" and isinstance(value, relax.Var):
                self._holds[value] = node.name

        def _marked(self, node: fx.Node, value: Any) -> Any:
            if isinstance(value, relax.Var) and self._holds.get(value) == node.name:
                return value  # the importer enters some values twice
            if isinstance(value, relax.Var) and value in self._holds:
                self.alias[node.name] = self._holds[value]
                return value
            if not isinstance(value, relax.Expr) or not isinstance(getattr(value, "ty", None), relax.TensorType):
                return value
            if not isinstance(value, relax.Var | relax.Call | relax.TupleGetItem):
                self.constants.add(node.name)
                return value
            value = self._importer.block_builder.emit(value, name_hint=mark(len(self.tensors)))
            self.tensors.append(node.name)
            self._holds[value] = node.name
            return value

    class Importer(ExportedProgramImporter):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.env = Table(self)

    return Importer()


def _nodes(graph: Any) -> tuple[SourceNode, ...]:
    """The calls of the graph; taking an item out of a tuple is no node, but names what the tuple's maker makes."""
    calls = [n for n in graph.nodes if n.op == "call_function"]
    items: dict[Any, list[str]] = {}
    for node in calls:
        if _target(node.target) == "getitem":
            items.setdefault(node.args[0], []).append(node.name)
    return tuple(
        SourceNode(n.name, str(n.target), tuple(i.name for i in n.all_input_nodes), (n.name, *items.get(n, ())))
        for n in calls
        if _target(n.target) != "getitem"
    )


def _output_name(spec: Any) -> str:
    if type(spec.arg).__name__ != "TensorArgument":
        raise ModelError(f"output '{getattr(spec.arg, 'name', spec.arg)}' is no tensor; return tensors alone")
    return str(spec.arg.name)


def _unique(names: list[str]) -> tuple[str, ...]:
    """Names of results that the program returns twice are numbered."""
    count: Counter[str] = Counter()
    found = []
    for name in names:
        count[name] += 1
        found.append(name if count[name] == 1 else f"{name}.{count[name]}")
    return tuple(found)


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
