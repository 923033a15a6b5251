"""Composites: what a code generator outside TVM computes, as opaque calls in ``main``.

A composite is one match of a backend's pattern; TVM calls it a layer. It is taken out of ``main``
before anything is lowered, so that no pass and no cut gets inside. ``regions`` puts it back into
a stage.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from autosplit.errors import ConfigError, ModelError, line_of
from autosplit.extras import relax, transform, tvm
from autosplit.frontend.relax.expressions import is_constant, substituted, variables
from autosplit.frontend.relax.main_function import (
    bindings,
    rebind,
    renamed,
    with_bindings,
    with_calls,
)
from autosplit.frontend.source import SourceModel, mark
from autosplit.lowering.external.backend import Backend
from autosplit.lowering.fuse.attribution import match
from autosplit.lowering.fuse.flat_calls import FlatCalls
from autosplit.lowering.fuse.provenance import adopt_names


@dataclass(frozen=True)
class Composite:
    """A layer: the function that computes it, and the symbol its opaque call goes by."""

    symbol: str
    backend: Backend
    function: Any

    @cached_property
    def key(self) -> str:
        """Changes with what the composite computes and with its backend."""
        digest = hashlib.sha256(tvm.ir.save_json(self.function).encode()).hexdigest()
        return f"{self.backend.name}-{digest[:20]}"

    @cached_property
    def constants(self) -> tuple[Any, ...]:
        """The weights inside."""
        constants: dict[Any, None] = {}

        def visit(node: Any) -> None:
            if is_constant(node):
                constants[node] = None

        relax.analysis.post_order_visit(self.function, visit)
        return tuple(constants)


def partition(source: SourceModel, backends: Sequence[Backend]) -> tuple[Any, dict[str, Composite]]:
    """The module of ``source`` with composites as opaque calls, and the composites by symbol.

    An earlier backend takes what it can before a later one. Raises ConfigError for a backend
    without patterns, ModelError where TVM cannot apply them.
    """
    plain = transform.CanonicalizeBindings()(adopt_names(source.module))
    plain = transform.DeadCodeElimination(["main"])(plain)
    patterns = [p for backend in backends for p in _patterns(backend)]
    try:
        module = transform.FuseOpsByPattern(patterns, bind_constants=True)(plain)
    except Exception as error:
        names = ", ".join(backend.name for backend in backends)
        raise ModelError(
            f"the patterns of {names} cannot be applied: {line_of(error, last=True)}"
        ) from error
    module = _without_edge_markers(module, backends)
    module = _with_marks(source, plain, module)
    composites = _composites(module, backends)
    return _opaque(module, composites), {c.symbol: c for c in composites.values()}


def _patterns(backend: Backend) -> list[Any]:
    prefix = f"{backend.name}."
    pattern_type = transform.FusionPattern
    patterns = [p if isinstance(p, pattern_type) else pattern_type(*p) for p in backend.patterns]
    patterns = patterns or list(relax.backend.get_patterns_with_prefix(prefix))
    if not patterns:
        raise ConfigError(
            f"backend '{backend.name}' has no patterns; register some under '{prefix}' or give them"
        )
    for pattern in patterns:
        if not pattern.name.startswith(prefix):
            raise ConfigError(
                f"pattern '{pattern.name}' is not of backend '{backend.name}'; call it {prefix}…"
            )
    for op in backend.markers:
        pattern = relax.dpl.is_op(op)(varg_default_wildcard=True)
        patterns.append(pattern_type(_marker_layer(backend, op), pattern))
    return patterns


def _marker_layer(backend: Backend, op: str) -> str:
    return f"{backend.name}.{op.removeprefix('relax.')}"


def _layer(module: Any, value: Any) -> str | None:
    """The name of the layer that a bound value calls, None where it calls none."""
    if not isinstance(getattr(value, "op", None), tvm.ir.GlobalVar):
        return None
    attributes = module[value.op].attrs or {}
    return str(attributes["Composite"]) if "Composite" in attributes else None


def _without_edge_markers(module: Any, backends: Sequence[Backend]) -> Any:
    """Put back into ``main`` the markers that do not lie between two layers of their backend."""
    markers = {_marker_layer(b, op): b.name for b in backends for op in b.markers}
    layers: dict[Any, str] = {}
    inputs: dict[Any, list[Any]] = {}
    readers: dict[Any, list[Any]] = {}
    for binding in bindings(module["main"]):
        layer = _layer(module, binding.value)
        if layer:
            layers[binding.var] = layer
        inputs[binding.var] = list(variables(binding.value))
        for var in inputs[binding.var]:
            readers.setdefault(var, []).append(binding.var)
    # Forwards from the layers before a marker, backwards from those after it; other markers on
    # the way do not count as layers.
    backwards = {var: readers.get(var, []) for var in reversed(list(inputs))}
    between = _reached(layers, markers, inputs) & _reached(layers, markers, backwards)
    edge = {var for var, layer in layers.items() if layer in markers and var not in between}
    return _inlined(module, edge) if edge else module


def _reached(
    layers: Mapping[Any, str], markers: Mapping[str, str], neighbours: Mapping[Any, Iterable[Any]]
) -> set[Any]:
    """The markers beside a layer of their backend, or beside a marker that is.

    ``neighbours`` are in the order of the walk.
    """
    reached: set[Any] = set()
    for var, others in neighbours.items():
        backend = markers.get(layers.get(var, ""))
        if backend is None:
            continue
        for other in others:
            layer = layers.get(other, "")
            counts = layer not in markers or other in reached
            if layer.startswith(f"{backend}.") and counts:
                reached.add(var)
    return reached


def _inlined(module: Any, dropped: set[Any]) -> Any:
    """``main`` with the composites bound to some variables put back; each is one operator call."""

    def inline(mutator: Any, binding: Any) -> bool:
        if binding.var not in dropped:
            return False
        call = mutator.visit_expr(binding.value)
        function = module[call.op]
        (inner,) = bindings(function)
        values = dict(zip(function.params, call.args, strict=True))
        arguments = [substituted(a, lambda p: values.get(p, p)) for a in inner.value.args]
        operator = relax.Call(inner.value.op, arguments, inner.value.attrs)
        rebind(mutator, binding.var, operator, binding.var.name)
        return True

    changed = with_bindings(module, inline)
    called = {getattr(b.value, "op", None) for b in bindings(changed["main"])}
    functions = {
        gvar: function
        for gvar, function in changed.functions.items()
        if "Composite" not in (function.attrs or {}) or gvar in called
    }
    return tvm.IRModule(functions, attrs=module.attrs)


def _with_marks(source: SourceModel, plain: Any, module: Any) -> Any:
    """The module with the results of composites marked again, which the pass has renamed."""
    number = {tensor: i for i, tensor in enumerate(source.tensors)}
    _, results = match(FlatCalls(source, plain), module)
    names = {}
    for position, binding in enumerate(bindings(module["main"])):
        tensors = results.get(position, ())
        if len(tensors) == 1 and tensors[0] in number:
            names[binding.var] = mark(number[tensors[0]])
    return renamed(module, names) if names else module


def _composites(module: Any, backends: Sequence[Backend]) -> dict[Any, Composite]:
    """The composites by the variable of the function, each under a symbol of its own.

    They are in the order of the calls.
    """
    by_name = {backend.name: backend for backend in backends}
    composites: dict[Any, Composite] = {}
    uses: Counter[str] = Counter()
    for binding in bindings(module["main"]):
        value = binding.value
        layer = _layer(module, value)
        if layer is None or value.op in composites:
            continue
        symbol = layer.replace(".", "_") + (str(uses[layer]) if uses[layer] else "")
        uses[layer] += 1
        backend = by_name[layer.partition(".")[0]]
        composites[value.op] = Composite(symbol, backend, module[value.op])
    return composites


def _opaque(module: Any, composites: Mapping[Any, Composite]) -> Any:
    """``main`` with the call of each composite as a call by symbol, and no composite beside it."""

    def by_symbol(call: Any) -> Any:
        if call.op not in composites:
            return call
        return call_by_symbol(composites[call.op].symbol, list(call.args), call.ty)

    return with_calls(module, by_symbol, without=composites)


def call_by_symbol(symbol: str, arguments: list[Any], kind: Any) -> Any:
    """A call of an external function that writes a result of type ``kind``."""
    results = list(kind.fields) if isinstance(kind, relax.TupleType) else kind
    return relax.call_dps_packed(symbol, relax.Tuple(arguments), results)
