"""The fused model: the pure graph, and beside each of its ops the Relax call that computes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from autosplit.errors import ModelError
from autosplit.frontend.relax.main_function import bindings
from autosplit.frontend.source import Signature, SourceModel
from autosplit.graph import FusedGraph, Op, build
from autosplit.lowering.external.composites import Backend, Composite, partition
from autosplit.lowering.external.groups import groups
from autosplit.lowering.fuse.amounts import (
    bytes_of,
    dtypes_of,
    flops_of,
    is_constant,
    size_of,
    static_shape,
)
from autosplit.lowering.fuse.attribution import Attribution, attribute
from autosplit.lowering.fuse.dynamic import require_static
from autosplit.lowering.fuse.flat import variables
from autosplit.lowering.fuse.fuse import FusedModule, fuse
from autosplit.lowering.fuse.index_range import integers_below


@dataclass(frozen=True)
class Call:
    """The Relax expression of one op: a call, or a constant that is an output of the model.

    ``reads`` says what each variable in it stands for: a tensor name, a constant, or a list of those (a tuple).
    ``weights`` are the constants inside a composite, which stand in no argument.
    """

    value: Any
    reads: Mapping[Any, Any]
    weights: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Lowered:
    """A model lowered for one target.

    ``calls[i]`` computes ``graph.ops[i]``; ``kernels`` are the PrimFuncs by name; ``outputs`` pairs each output name of
    the model with the tensor that holds it; ``composites`` are what external backends run, by the symbol an op calls,
    ``keep_together`` the ops of each region that no cut may part. ``dtypes`` are the element types it computes in, those inside
    a fused op too. ``integers_below``: by name of an input of integers what random values of it stay below, where its use is
    known.
    """

    graph: FusedGraph
    calls: tuple[Call, ...]
    kernels: Mapping[str, Any]
    inputs: tuple[Signature, ...]
    outputs: tuple[tuple[str, str], ...]
    composites: Mapping[str, Composite] = field(default_factory=dict)
    keep_together: tuple[tuple[int, ...], ...] = ()
    dtypes: frozenset[str] = frozenset()
    integers_below: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def regions(self) -> Mapping[str, tuple[int, ...]]:
        """By the name of an external backend the ops that it runs, by index."""
        found: dict[str, list[int]] = {}
        for i, op in enumerate(self.graph.ops):
            if op.kernel in self.composites:
                found.setdefault(self.composites[op.kernel].backend.name, []).append(i)
        return {name: tuple(ops) for name, ops in found.items()}

    @cached_property
    def weight_bytes(self) -> int:
        """The bytes of all constants, each counted once."""
        return bytes_of(c for call in self.calls for c in constants(call))


def lower(source: SourceModel, target: Any, backends: Sequence[Backend] = ()) -> Lowered:
    """Fuse ``source`` for ``target`` (a tvm Target) and name everything. Raises ModelError where it cannot be split.

    What a pattern of ``backends`` matches is an op of its own, which nothing fuses with and no cut divides.
    """
    module, composites = partition(source, backends) if backends else (source.module, {})
    lowered = _Reader(
        source, fuse(module, target, partial(require_static, source)), composites
    ).lowered()
    keep_together = groups(lowered.graph, composites, backends)
    return replace(lowered, keep_together=keep_together, integers_below=integers_below(source))


def constants(call: Call) -> Iterator[Any]:
    """The constants an op reads, in order, repeats included."""
    stack = [call.value, *call.weights, *(v for v in call.reads.values() if not isinstance(v, str))]
    while stack:
        value = stack.pop()
        if isinstance(value, list):
            stack.extend(value)
        elif is_constant(value):
            yield value
        else:
            stack.extend(getattr(value, "args", getattr(value, "fields", ())))


class _Reader:
    """Walks the fused ``main``; ``env`` maps a variable to a tensor name, a constant or a list of those (a tuple)."""

    def __init__(
        self, source: SourceModel, module: FusedModule, composites: Mapping[str, Composite]
    ) -> None:
        self._composites = composites
        self._source = source
        self._module = module
        self._names: Attribution = attribute(source, module)
        self._flops = {
            g.name_hint: flops_of(f)
            for g, f in module.fused.functions.items()
            if g.name_hint != "main"
        }
        self._ops: list[Op] = []
        self._calls: list[Call] = []
        self._shapes: dict[str, tuple[tuple[int, ...], str, int]] = {}
        self._env: dict[Any, Any] = {}

    def lowered(self) -> Lowered:
        from tvm import relax

        main = self._module.fused["main"]
        for var, signature in zip(main.params, self._source.inputs, strict=True):
            self._env[var] = self._tensor(signature.name, var.ty)
        for position, binding in enumerate(bindings(main)):
            value = getattr(binding, "value", None)
            if isinstance(value, relax.Call):
                self._op(position, binding.var, value)
            elif value is not None:
                self._env[binding.var] = self._resolve(value)
            else:
                raise ModelError(
                    f"variable '{binding.var.name}' has a shape known only at run time; give static shapes"
                )
        outputs = self._outputs(main.body.body)
        source, tensors = self._source, tuple(dict.fromkeys(t for _, t in outputs))
        inputs = (i.name for i in source.inputs)
        graph = build(source.name, self._ops, self._shapes, inputs, tensors, self._names.folded)
        kernels = {
            g.name_hint: f for g, f in self._module.fused.functions.items() if g.name_hint != "main"
        }
        dtypes = frozenset(t.dtype for t in graph.tensors.values()) | dtypes_of(
            self._module.flat["main"]
        )
        return Lowered(
            graph,
            tuple(self._calls),
            kernels,
            source.inputs,
            outputs,
            self._composites,
            dtypes=dtypes,
        )

    def _op(self, position: int, var: Any, value: Any) -> None:
        import tvm
        from tvm import relax

        callee = value.args[0] if value.args else None
        kernel: Any = getattr(callee, "name_hint", None) or getattr(callee, "global_symbol", None)
        if isinstance(value.op, tvm.ir.Op) and not value.op.name.startswith("relax.call_"):
            of = " ".join(
                self._names.sources.get(position, ()) or self._names.parts.get(position, ())
            )
            raise ModelError(
                f"op {value.op.name} of node '{of}' has no kernel for this target; replace it in the model"
            )
        kernel = kernel or getattr(value.op, "name", None) or getattr(value.op, "name_hint", "call")
        name = f"op{len(self._ops)}_{kernel}"
        kinds = list(var.ty.fields) if isinstance(var.ty, relax.TupleType) else [var.ty]
        given = self._names.results.get(position, ())
        results = [
            self._tensor((given[i] if i < len(given) else None) or f"{name}.{i}", kind)
            for i, kind in enumerate(kinds)
        ]
        self._env[var] = results if isinstance(var.ty, relax.TupleType) else results[0]
        weights = self._composites[kernel].constants if kernel in self._composites else ()
        call = Call(value, {v: self._env[v] for v in variables(value)}, weights)
        self._add(name, str(kernel), call, results, position)

    def _add(self, name: str, kernel: str, call: Call, results: list[str], position: int) -> None:
        reads = dict.fromkeys(t for v in call.reads.values() for t in _tensors(v))
        self._ops.append(
            Op(
                name=name,
                kernel=kernel,
                sources=self._names.sources.get(position, ()),
                inputs=tuple(reads),
                outputs=tuple(results),
                weight_bytes=bytes_of(constants(call)),
                flops=self._flops.get(kernel, 0.0),
                parts=self._names.parts.get(position, ()),
            )
        )
        self._calls.append(call)

    def _tensor(self, name: str, kind: Any) -> str:
        """Enter a tensor under ``name``, or under a free name near it; returns the name used."""
        name = next(n for n in _candidates(name) if n not in self._shapes)
        shape = static_shape(name, kind)
        dtype = str(kind.dtype)
        self._shapes[name] = (shape, dtype, size_of(shape, dtype))
        return name

    def _resolve(self, value: Any) -> Any:
        """What an expression without computation stands for."""
        from tvm import relax

        if isinstance(value, relax.Var):
            return self._env[value]
        if isinstance(value, relax.Tuple):
            return [self._resolve(field) for field in value.fields]
        if isinstance(value, relax.TupleGetItem):
            return self._resolve(value.tuple_value)[value.index]
        if is_constant(value):
            return value
        raise ModelError(
            f"the model holds a {type(value).__name__} between its ops, which cannot cross a cut"
        )

    def _outputs(self, body: Any) -> tuple[tuple[str, str], ...]:
        result = self._resolve(body)
        tupled = self._source.tupled or len(self._source.outputs) > 1
        values = result if isinstance(result, list) and tupled else [result]
        unique = dict(
            zip(self._source.outputs, values, strict=True)
        )  # a graph may list an output twice
        return tuple(
            (name, value if isinstance(value, str) else self._constant_output(name, value))
            for name, value in unique.items()
        )

    def _constant_output(self, name: str, value: Any) -> str:
        """An output that is known without running the model is an op too: some stage must hand it out."""
        if not is_constant(value):
            raise ModelError(f"output '{name}' is no tensor; only tensors can leave a pipeline")
        tensor = self._tensor(name, value.ty)
        self._add(f"op{len(self._ops)}_constant", "constant", Call(value, {}), [tensor], -1)
        return tensor


def _candidates(name: str) -> Iterator[str]:
    yield name
    number = 2
    while True:
        yield f"{name}.{number}"
        number += 1


def _tensors(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _tensors(item)
