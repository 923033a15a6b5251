"""Reads a fused ``main``: enters its calls as ops of a graph, with names and sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate
from typing import Any

from autosplit.errors import ModelError
from autosplit.extras import relax, tvm
from autosplit.frontend.relax.expressions import callee, flat, is_constant, resolve, variables
from autosplit.frontend.relax.main_function import bindings
from autosplit.frontend.source import OPAQUE, SourceModel, unused
from autosplit.graph import FusedGraph, Op, build
from autosplit.lowering.external.composites import Composite
from autosplit.lowering.fuse.attribution import OpNames, attribute
from autosplit.lowering.fuse.passes import FusedModule
from autosplit.lowering.fuse.tensors import (
    Call,
    bytes_of,
    constants,
    flops_of,
    size_of,
    static_shape,
)
from autosplit.lowering.layout.order import SUFFIX, source_shape

Outputs = tuple[tuple[str, str], ...]


def read(
    source: SourceModel, module: FusedModule, composites: Mapping[str, Composite]
) -> tuple[FusedGraph, tuple[Call, ...], Outputs, frozenset[str]]:
    """The graph, and the fields ``calls``, ``outputs`` and ``channels_last`` of ``Lowered``.

    Raises ModelError for an op without a kernel and for a size that is not known.
    """
    reader = _Reader(source, module, composites)
    outputs = reader.walk()
    # Two outputs of the model may be one tensor.
    tensors = tuple(dict.fromkeys(tensor for _, tensor in outputs))
    graph = build(
        source.name,
        reader.ops,
        reader.tensors,
        (i.name for i in source.inputs),
        tensors,
        reader.names.folded,
    )
    graph = replace(graph, modules=_modules(source, graph))
    return graph, tuple(reader.calls), outputs, frozenset(reader.channels_last)


def _modules(source: SourceModel, graph: FusedGraph) -> dict[str, tuple[int, ...]]:
    """The indices of the ops of each PyTorch module."""
    modules_of = {node.name: node.modules for node in source.nodes}
    ops: dict[str, dict[int, None]] = {}
    for i, op in enumerate(graph.ops):
        for name in (*op.sources, *op.parts):
            for module in modules_of[name]:
                # Torch adds @N to repeated calls, and records the items of a list but not the list.
                path = re.sub(r"@\d+", "", module).split(".")
                for part in accumulate(path, "{}.{}".format):
                    ops.setdefault(part, {})[i] = None
    return {module: tuple(indices) for module, indices in ops.items()}


class _Reader:
    """Walks the fused ``main``.

    ``_content`` maps a variable to a tensor name, a constant or, for a tuple, a list of those.
    """

    def __init__(
        self, source: SourceModel, module: FusedModule, composites: Mapping[str, Composite]
    ) -> None:
        self.ops: list[Op] = []
        self.calls: list[Call] = []
        self.tensors: dict[str, tuple[tuple[int, ...], str, int]] = {}
        self.channels_last: set[str] = set()
        self.names = attribute(source, module)
        self._source = source
        self._main = module.fused["main"]
        self._composites = composites
        self._content: dict[Any, Any] = {}
        # Estimated once per kernel, since many ops share one.
        self._flops = {
            gvar.name_hint: flops_of(function)
            for gvar, function in module.fused.functions.items()
            if gvar.name_hint != "main"
        }

    def walk(self) -> Outputs:
        params = self._main.params, self._source.module["main"].params, self._source.inputs
        for var, before, signature in zip(*params, strict=True):
            # The source itself may have given an input a name with the suffix.
            is_last = var.name.endswith(SUFFIX) and var.name != before.name
            self._content[var] = self._enter_tensor(signature.name, var.ty, is_last)
        names = iter(self.names.ops)
        for binding in bindings(self._main):
            if isinstance(binding.value, relax.Call):
                self._enter_call(next(names), binding.var, binding.value)
            else:
                self._content[binding.var] = self._resolve(binding.value)
        return self._outputs(self._main.body.body)

    def _enter_call(self, names: OpNames, var: Any, value: Any) -> None:
        kernel = _kernel(names, value)
        name = f"op{len(self.ops)}_{kernel}"
        is_tuple = isinstance(var.ty, relax.TupleType)
        results = []
        kinds = var.ty.fields if is_tuple else [var.ty]
        for i, (kind, source_name) in enumerate(zip(kinds, names.results, strict=True)):
            # A kernel in the middle of a node makes a tensor that the source has no name for.
            is_last = source_name in self.names.channels_last
            results.append(self._enter_tensor(source_name or f"{name}.{i}", kind, is_last))
        self._content[var] = results if is_tuple else results[0]
        weights = self._composites[kernel].constants if kernel in self._composites else ()
        call = Call(value, {v: self._content[v] for v in variables(value)}, weights)
        self._enter_op(name, kernel, call, results, names)

    def _enter_op(
        self, name: str, kernel: str, call: Call, results: list[str], names: OpNames
    ) -> None:
        read = flat(list(call.reads.values()))
        inputs = dict.fromkeys(tensor for tensor in read if isinstance(tensor, str))
        nodes = (*names.sources, *names.parts)
        reasons = [self._source.opaque[n] for n in nodes if n in self._source.opaque]
        is_opaque = kernel.startswith(OPAQUE) and reasons
        self.ops.append(
            Op(
                name=name,
                kernel=kernel,
                sources=names.sources,
                inputs=tuple(inputs),
                outputs=tuple(results),
                weight_bytes=bytes_of(constants(call)),
                flops=self._flops.get(kernel, 0.0),
                parts=names.parts,
                opaque=reasons[0] if is_opaque else "",
            )
        )
        self.calls.append(call)

    def _enter_tensor(self, name: str, kind: Any, is_last: bool = False) -> str:
        """Enter a tensor under ``name``, with a number appended if that name is taken.

        A tensor with channels last is entered with its shape in the source.
        """
        unique = unused(name, set(self.tensors))
        shape = static_shape(unique, kind)
        if is_last:
            self.channels_last.add(unique)
            shape = source_shape(shape)
        dtype = str(kind.dtype)
        self.tensors[unique] = (shape, dtype, size_of(shape, dtype))
        return unique

    def _resolve(self, value: Any) -> Any:
        return resolve(value, self._content, _constant)

    def _outputs(self, body: Any) -> Outputs:
        result = self._resolve(body)
        is_tuple = self._source.tupled or len(self._source.outputs) > 1
        values = result if isinstance(result, list) and is_tuple else [result]
        # A graph may list an output twice.
        unique = dict(zip(self._source.outputs, values, strict=True))
        outputs = []
        for name, value in unique.items():
            tensor = value if isinstance(value, str) else self._constant_output(name, value)
            outputs.append((name, tensor))
        return tuple(outputs)

    def _constant_output(self, name: str, value: Any) -> str:
        """Enter an output that is a constant as an op, since some stage must return it."""
        if not is_constant(value):
            raise ModelError(f"output '{name}' is not a tensor; only tensors can leave a pipeline")
        # An op without inputs, so that any stage may have it.
        tensor = self._enter_tensor(name, value.ty)
        op = f"op{len(self.ops)}_constant"
        self._enter_op(op, "constant", Call(value, {}), [tensor], OpNames())
        return tensor


def _kernel(names: OpNames, value: Any) -> str:
    """The name of what a call runs. Raises ModelError for an operator that has not been lowered."""
    if isinstance(value.op, tvm.ir.Op) and not value.op.name.startswith("relax.call_"):
        raise ModelError(
            f"op {value.op.name} of node '{' '.join(names.sources or names.parts)}' has no kernel "
            "for this target; replace it in the model"
        )
    return callee(value)


def _constant(value: Any) -> Any:
    """Return a constant as it is. Raises ModelError for anything else."""
    if not is_constant(value):
        raise ModelError(
            f"the model holds a {type(value).__name__} between its ops, which cannot cross a cut"
        )
    return value
