"""External backends: composites that a code generator outside TVM runs, as nodes of the graph.

A composite (one match of a backend's pattern, for TVM a *layer*) is taken out of ``main`` before anything is lowered and
stands there as one opaque call, so that no pass and no cut gets inside. The stages put it back, see ``external_regions``.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from autosplit.errors import ConfigError, ModelError, line_of
from autosplit.frontend.relax.main_function import bindings, rebind, renamed, with_main
from autosplit.frontend.source import SourceModel, mark
from autosplit.lowering.fuse.attribution import match
from autosplit.lowering.fuse.flat import Flat, variables
from autosplit.lowering.fuse.provenance import adopt_names


@dataclass(frozen=True)
class Backend:
    """An external backend: the code generator ``relax.ext.<name>``.

    ``patterns`` are TVM FusionPatterns or the tuples that make one, named ``<name>.<layer>``, first come first served;
    without any, those in TVM's registry whose names start with ``<name>.``. ``merge``: neighbouring layers in a stage
    become one region. ``markers`` are Relax ops (``relax.astype``) that do not break a region: where one lies between two
    layers the backend takes it too, as the layer ``<name>.astype``. ``regions``: ops or source nodes that stay together.
    """

    name: str
    patterns: tuple[Any, ...] = ()
    merge: bool = True
    markers: tuple[str, ...] = ()
    regions: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Composite:
    """A layer: the function that computes it, and the symbol its opaque call goes by."""

    symbol: str
    backend: Backend
    function: Any

    @cached_property
    def key(self) -> str:
        """Changes with what the composite computes and with its backend."""
        import tvm

        return f"{self.backend.name}-{hashlib.sha256(tvm.ir.save_json(self.function).encode()).hexdigest()[:20]}"

    @cached_property
    def constants(self) -> tuple[Any, ...]:
        """The weights inside."""
        import tvm
        from tvm import relax

        found: dict[Any, None] = {}

        def visit(node: Any) -> None:
            if isinstance(node, tvm.ir.GenericConst):
                found[node] = None

        relax.analysis.post_order_visit(self.function, visit)
        return tuple(found)


def partition(source: SourceModel, backends: Sequence[Backend]) -> tuple[Any, dict[str, Composite]]:
    """The module of ``source`` with every composite of the backends as an opaque call, and the composites by symbol.

    An earlier backend takes what it can before a later one. Raises ConfigError for a backend without patterns, ModelError
    where TVM cannot apply them.
    """
    from tvm.relax import transform as t

    plain = t.DeadCodeElimination(["main"])(t.CanonicalizeBindings()(adopt_names(source.module)))
    patterns = [p for backend in backends for p in _patterns(backend)]
    try:
        module = t.FuseOpsByPattern(patterns, bind_constants=True)(plain)
    except Exception as error:
        reason = line_of(error, last=True)
        raise ModelError(
            f"the patterns of {', '.join(b.name for b in backends)} cannot be applied: {reason}"
        ) from error
    module = _without_edge_markers(module, backends)
    module = _named(source, plain, module)
    composites = _composites(module, backends)
    return _opaque(module, composites), {c.symbol: c for c in composites.values()}


def _patterns(backend: Backend) -> list[Any]:
    from tvm.relax.backend import get_patterns_with_prefix
    from tvm.relax.dpl import is_op
    from tvm.relax.transform import FusionPattern

    found = [p if isinstance(p, FusionPattern) else FusionPattern(*p) for p in backend.patterns]
    found = found or list(get_patterns_with_prefix(f"{backend.name}."))
    if not found:
        raise ConfigError(
            f"backend '{backend.name}' has no patterns; register some under '{backend.name}.' or give them"
        )
    for pattern in found:
        if not pattern.name.startswith(f"{backend.name}."):
            raise ConfigError(
                f"pattern '{pattern.name}' is not of backend '{backend.name}'; call it {backend.name}.…"
            )
    markers = [
        FusionPattern(_marker(backend, op), is_op(op)(varg_default_wildcard=True))
        for op in backend.markers
    ]
    return [*found, *markers]


def _marker(backend: Backend, op: str) -> str:
    return f"{backend.name}.{op.removeprefix('relax.')}"


def _layer(module: Any, value: Any) -> str | None:
    """The name of the layer that a bound value calls, None where it calls none."""
    import tvm

    if isinstance(getattr(value, "op", None), tvm.ir.GlobalVar):
        attributes = module[value.op].attrs or {}
        return str(attributes["Composite"]) if "Composite" in attributes else None
    return None


def _without_edge_markers(module: Any, backends: Sequence[Backend]) -> Any:
    """Put markers back into ``main`` that do not lie between two layers of their backend, other markers aside."""
    markers = {_marker(b, op): b.name for b in backends for op in b.markers}
    found = bindings(module["main"])
    reads = {b.var: list(variables(b.value)) for b in found if hasattr(b, "value")}
    layers = {b.var: layer for b in found if (layer := _layer(module, getattr(b, "value", None)))}
    before = _reached(layers, markers, reads)
    readers: dict[Any, list[Any]] = {}
    for var, inputs in reads.items():
        for each in inputs:
            readers.setdefault(each, []).append(var)
    after = _reached(layers, markers, {var: readers.get(var, []) for var in reversed(list(reads))})
    dropped = {
        v for v, layer in layers.items() if layer in markers and not (v in before and v in after)
    }
    return _inlined(module, dropped) if dropped else module


def _inlined(module: Any, dropped: set[Any]) -> Any:
    """``main`` with the composites bound to some variables put back; each is one call of an operator."""
    import tvm
    from tvm import relax

    @relax.expr_functor.mutator
    class Inline(relax.PyExprMutator):  # type: ignore[misc]
        def visit_var_binding_(self, binding: Any) -> None:
            if binding.var not in dropped:
                super().visit_var_binding_(binding)
                return
            call = self.visit_expr(binding.value)
            function = module[call.op]
            (inner,) = bindings(function)
            values = dict(zip(function.params, call.args, strict=True))
            made = relax.Call(
                inner.value.op, [_put(a, values) for a in inner.value.args], inner.value.attrs
            )
            rebind(self, binding.var, made, binding.var.name)

    main = Inline(module).visit_expr(module["main"])
    called = {
        b.value.op
        for b in bindings(main)
        if isinstance(getattr(getattr(b, "value", None), "op", None), tvm.ir.GlobalVar)
    }
    kept = {
        g: f
        for g, f in module.functions.items()
        if "Composite" not in (f.attrs or {}) or g in called
    }
    return with_main(tvm.IRModule(kept, attrs=module.attrs), main)


def _put(expression: Any, values: Mapping[Any, Any]) -> Any:
    """An argument with parameters replaced by what they stand for."""
    from tvm import relax

    if isinstance(expression, relax.Tuple):
        return relax.Tuple([_put(field, values) for field in expression.fields])
    return values.get(expression, expression) if isinstance(expression, relax.Var) else expression


def _reached(
    layers: Mapping[Any, str], markers: Mapping[str, str], beside: Mapping[Any, Iterable[Any]]
) -> set[Any]:
    """The markers beside a layer of their backend, or beside a marker that is; ``beside`` in the order of the walk."""
    found: set[Any] = set()
    for var, others in beside.items():
        backend = markers.get(layers.get(var, ""))
        for other in others:
            layer = layers.get(other, "")
            if (
                backend
                and layer.startswith(f"{backend}.")
                and (layer not in markers or other in found)
            ):
                found.add(var)
    return found


def _named(source: SourceModel, plain: Any, module: Any) -> Any:
    """The module with the results of composites marked again: the pass gives them names of its own."""
    number = {tensor: i for i, tensor in enumerate(source.tensors)}
    _, results = match(Flat(source, plain), module)
    names = {}
    for position, binding in enumerate(bindings(module["main"])):
        tensors = results.get(position, ())
        if len(tensors) == 1 and tensors[0] in number:
            names[binding.var] = mark(number[tensors[0]])
    return renamed(module, names) if names else module


def _composites(module: Any, backends: Sequence[Backend]) -> dict[Any, Composite]:
    """The composites by the variable of the function, each under a symbol of its own, in the order of the calls."""
    owners = {backend.name: backend for backend in backends}
    found: dict[Any, Composite] = {}
    count: Counter[str] = Counter()
    for binding in bindings(module["main"]):
        value: Any = getattr(binding, "value", None)
        layer = _layer(module, value)
        if layer is None or value.op in found:
            continue
        symbol = layer.replace(".", "_") + (str(count[layer]) if count[layer] else "")
        count[layer] += 1
        found[value.op] = Composite(symbol, owners[layer.partition(".")[0]], module[value.op])
    return found


def _opaque(module: Any, composites: Mapping[Any, Composite]) -> Any:
    """``main`` with the call of each composite as a call by symbol, and no composite in the module."""
    import tvm
    from tvm import relax

    @relax.expr_functor.mutator
    class Replace(relax.PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: Any) -> Any:
            call = super().visit_call_(call)
            if call.op not in composites:
                return call
            kind = call.ty
            results = list(kind.fields) if isinstance(kind, relax.TupleType) else kind
            return relax.call_dps_packed(
                composites[call.op].symbol, relax.Tuple(list(call.args)), results
            )

    main = Replace(module).visit_expr(module["main"])
    kept = {g: f for g, f in module.functions.items() if g not in composites}
    return with_main(tvm.IRModule(kept, attrs=module.attrs), main)
