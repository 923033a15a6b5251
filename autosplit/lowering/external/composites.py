"""Composites: layers that a code generator outside TVM computes, as opaque calls in ``main``.

A composite is one match of a backend's pattern; TVM calls it a layer. It is taken out of ``main``
before anything is lowered, so that no pass and no cut can divide it. ``regions`` puts it back into
a stage.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, count
from typing import Any

from autosplit.errors import ConfigError, ModelError, explained
from autosplit.extras import relax, transform, tvm
from autosplit.frontend.relax.expressions import variables
from autosplit.frontend.relax.main_function import bindings, renamed, with_calls
from autosplit.frontend.source import SourceModel, mark
from autosplit.lowering.external.backend import Backend
from autosplit.lowering.fuse.attribution import FlatCalls, match
from autosplit.lowering.fuse.passes import adopt_names
from autosplit.lowering.fuse.tensors import Call, constants


@dataclass(frozen=True)
class Composite:
    """A layer: the function that computes it, and the symbol of its opaque call."""

    symbol: str
    backend: Backend
    function: Any

    @property
    def region(self) -> str:
        """The symbol that TVM gives a region that consists of this composite alone."""
        return f"{self.symbol}_{self.backend.name}"

    @cached_property
    def key(self) -> str:
        """The name of the backend and a digest of the function that the composite computes."""
        digest = hashlib.sha256(tvm.ir.save_json(self.function).encode()).hexdigest()
        return f"{self.backend.name}-{digest[:20]}"

    @cached_property
    def constants(self) -> tuple[Any, ...]:
        """The constants inside the composite, each once."""
        read = (constants(Call(b.value, {})) for b in bindings(self.function))
        return tuple(dict.fromkeys(chain.from_iterable(read)))


def partition(source: SourceModel, backends: Sequence[Backend]) -> tuple[Any, dict[str, Composite]]:
    """The module of ``source`` with composites as opaque calls, and the composites by symbol.

    Patterns of an earlier backend are applied first. Raises ConfigError for a backend
    without patterns, ModelError where TVM cannot apply them.
    """
    plain = transform.CanonicalizeBindings()(adopt_names(source.module))
    plain = transform.DeadCodeElimination(["main"])(plain)
    patterns = [p for backend in backends for p in _patterns(backend)]
    names = ", ".join(backend.name for backend in backends)
    with explained(ModelError, f"the patterns of {names} cannot be applied"):
        module = transform.FuseOpsByPattern(patterns, bind_constants=True)(plain)
        for backend in backends:
            module = _with_markers(module, backend)
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
    return patterns


def _layer(module: Any, value: Any) -> str:
    """The name of the layer that a bound value calls, empty where it calls none."""
    if not isinstance(getattr(value, "op", None), tvm.ir.GlobalVar):
        return ""
    return str((module[value.op].attrs or {}).get("Composite", ""))


def _with_markers(module: Any, backend: Backend) -> Any:
    """The module with each marker between two layers of its backend as a layer of its own."""
    between = _markers_between(module, backend)

    def lies_between(context: Any) -> bool:
        return context.value_to_bound_var[context.matched_expr] in between

    patterns = []
    for op in backend.markers if between else ():
        pattern = relax.dpl.is_op(op)(varg_default_wildcard=True)
        layer = f"{backend.name}.{op.removeprefix('relax.')}"
        patterns.append(transform.FusionPattern(layer, pattern, check=lies_between))
    return transform.FuseOpsByPattern(patterns, bind_constants=True)(module) if between else module


def _markers_between(module: Any, backend: Backend) -> set[Any]:
    """The variables of markers on a path of markers from one layer to another."""
    main = bindings(module["main"])
    layers = {b.var for b in main if _layer(module, b.value).startswith(f"{backend.name}.")}
    ops = [tvm.ir.Op.get(name) for name in backend.markers]
    markers = {b.var for b in main if getattr(b.value, "op", None) in ops}
    after, before = set(layers), set[Any]()
    for binding in main:
        if binding.var in markers and after.intersection(variables(binding.value)):
            after.add(binding.var)
    for binding in reversed(main):
        if binding.var in layers or binding.var in markers & before:
            before.update(variables(binding.value))
    return markers & after & before


def _with_marks(source: SourceModel, plain: Any, module: Any) -> Any:
    """The module with the marks restored on results of composites, which the pass has renamed."""
    number = {tensor: i for i, tensor in enumerate(source.tensors)}
    _, results = match(FlatCalls(source, plain), module)
    names = {}
    calls = (b.var for b in bindings(module["main"]) if isinstance(b.value, relax.Call))
    for variable, tensors in zip(calls, results, strict=True):
        if len(tensors) == 1 and tensors[0] in number:
            names[variable] = mark(number[tensors[0]])
    return renamed(module, names) if names else module


def _composites(module: Any, backends: Sequence[Backend]) -> dict[Any, Composite]:
    """The composites, in the order of calls, by the global variable of their function."""
    by_name = {backend.name: backend for backend in backends}
    composites: dict[Any, Composite] = {}
    taken: set[str] = set()
    for binding in bindings(module["main"]):
        value = binding.value
        layer = _layer(module, value)
        if not layer or value.op in composites:
            continue
        numbered = (f"{layer.replace('.', '_')}{n or ''}" for n in count())
        symbol = next(name for name in numbered if name not in taken)
        taken.add(symbol)
        backend = by_name[layer.partition(".")[0]]
        composites[value.op] = Composite(symbol, backend, module[value.op])
    return composites


def _opaque(module: Any, composites: Mapping[Any, Composite]) -> Any:
    """The module with composites called by symbol, and without the functions that compute them."""

    def by_symbol(_: Any, call: Any) -> Any:
        if call.op not in composites:
            return call
        return call_by_symbol(composites[call.op].symbol, list(call.args), call.ty)

    functions = with_calls(module, by_symbol).functions.items()
    remaining = {variable: f for variable, f in functions if variable not in composites}
    return tvm.IRModule(remaining, attrs=module.attrs)


def call_by_symbol(symbol: Any, arguments: list[Any], kind: Any) -> Any:
    """A call of an external function that writes a result of type ``kind``."""
    results = list(kind.fields) if isinstance(kind, relax.TupleType) else kind
    return relax.call_dps_packed(symbol, relax.Tuple(arguments), results)
