"""The composites of one stage merged into regions and handed to the code generators of their backends.

TVM's contract: a region is a function with the attribute ``Codegen``; its layers are local functions with the attribute
``Composite``, which hold no further function. Calls of equal layers share one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autosplit.errors import MachineError, line_of
from autosplit.lowering.external.composites import Composite

_STANDS_FOR = "autosplit.stands_for"


def generate(
    module: Any, composites: Mapping[str, Composite], names: Mapping[str, str], merge: bool
) -> tuple[Any, list[Any]]:
    """The stage's module with its regions generated, and the runtime modules that hold them.

    ``names`` maps the symbol of each composite in the module to the name of its op, for messages. Neighbouring composites
    of one backend become one region unless the backend or ``merge`` says otherwise; a region of one composite keeps that
    composite's symbol. Raises MachineError, naming the ops, where a code generator is missing or fails.
    """
    from tvm.relax import transform as t

    _require_generators(composites, names)
    alone = {s for s, c in composites.items() if not (merge and c.backend.merge)}
    module = _restored(module, composites, alone)
    module = _called_by_symbol(_renamed_regions(t.MergeCompositeFunctions()(module), composites))
    try:
        module = t.RunCodegen()(module)
    except Exception as error:
        backends = ", ".join(sorted({c.backend.name for c in composites.values()}))
        reason = line_of(error, last=True)
        raise MachineError(
            f"backend {backends} cannot compile ops {', '.join(names.values())}: {reason}"
        ) from error
    return module, list((module.attrs or {}).get("external_mods", []))


def regions(module: Any, composites: Mapping[str, Composite]) -> list[Any]:
    """The functions that ``generate`` hands to code generators, for a module whose composites all may merge."""
    from tvm.relax import transform as t

    merged = t.MergeCompositeFunctions()(_restored(module, composites, set()))
    return [f for f in merged.functions.values() if "Codegen" in (f.attrs or {})]


def _require_generators(composites: Mapping[str, Composite], names: Mapping[str, str]) -> None:
    import tvm

    for backend in sorted({c.backend.name for c in composites.values()}):
        if tvm.get_global_func(f"relax.ext.{backend}", allow_missing=True) is None:
            ops = [names[s] for s, c in composites.items() if c.backend.name == backend]
            raise MachineError(
                f"backend '{backend}' has no code generator for ops {', '.join(ops)}; register relax.ext.{backend}, use a "
                f"TVM built with it, or load the model without the backend"
            )


def _restored(module: Any, composites: Mapping[str, Composite], alone: set[str]) -> Any:
    """The module with its calls by symbol as calls of functions: composites, regions already for those of ``alone``, and
    stand-ins for kernels, since the pass that merges cannot walk over a call by symbol (see ``_called_by_symbol``).
    """
    from tvm import relax

    def function_of(symbol: str, kinds: Sequence[Any], result: Any) -> Any:
        if symbol in composites:
            function = composites[symbol].function
            return _region(function, symbol) if symbol in alone else function
        return _stand_in(symbol, kinds, result)

    @relax.expr_functor.mutator
    class Restore(relax.PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: Any) -> Any:
            call = super().visit_call_(call)
            symbol: Any = getattr(call.args[0], "global_symbol", None) if call.args else None
            if symbol is None:
                return call
            arguments = list(call.args[1].fields)
            made = function_of(str(symbol), [a.ty for a in arguments], _result(call))
            return relax.Call(self.builder_.add_func(made, str(symbol)), arguments)

    restore = Restore(module)
    gvar = next(g for g in module.get_global_vars() if g.name_hint == "main")
    restore.builder_.update_func(gvar, restore.visit_expr(module[gvar]))
    return restore.builder_.get()


def _result(call: Any) -> Any:
    """The type of what a call by symbol makes."""
    return call.ty_args[0]


def _stand_in(symbol: str, kinds: Sequence[Any], result: Any) -> Any:
    """A function of a kernel's type that says which symbol it stands for."""
    from tvm import relax

    builder = relax.BlockBuilder()
    params = [relax.Var(f"p{i}", kind) for i, kind in enumerate(kinds)]
    fields = list(result.fields) if isinstance(result, relax.TupleType) else [result]
    with builder.function("main", params):
        zeros = [builder.emit(relax.op.zeros(f.shape, f.dtype)) for f in fields]
        builder.emit_func_output(
            relax.Tuple(zeros) if isinstance(result, relax.TupleType) else zeros[0]
        )
    return builder.get()["main"].without_attr("global_symbol").with_attr(_STANDS_FOR, symbol)


def _called_by_symbol(module: Any) -> Any:
    """The module with calls by symbol in place of the stand-ins."""
    import tvm
    from tvm import relax

    stands_for = {
        g: str(f.attrs[_STANDS_FOR])
        for g, f in module.functions.items()
        if _STANDS_FOR in (f.attrs or {})
    }

    @relax.expr_functor.mutator
    class Call(relax.PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: Any) -> Any:
            call = super().visit_call_(call)
            if call.op not in stands_for:
                return call
            kind = call.op.ty.ret
            results = list(kind.fields) if isinstance(kind, relax.TupleType) else kind
            return relax.call_dps_packed(stands_for[call.op], relax.Tuple(list(call.args)), results)

    functions = {g: f for g, f in module.functions.items() if g not in stands_for}
    main = next(g for g in functions if g.name_hint == "main")
    functions[main] = Call(module).visit_expr(functions[main])
    return tvm.IRModule(functions, attrs=module.attrs)


def _region(function: Any, symbol: str) -> Any:
    """The region of one composite alone, made by the pass that makes all regions."""
    from tvm import relax
    from tvm.relax import transform as t

    builder = relax.BlockBuilder()
    layer = builder.add_func(function, symbol)
    params = [relax.Var(p.name, p.ty) for p in function.params]
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(relax.Call(layer, params))
        builder.emit_func_output(result)
    merged = t.MergeCompositeFunctions()(builder.get())
    return next(f for f in merged.functions.values() if "Codegen" in (f.attrs or {}))


def _renamed_regions(module: Any, composites: Mapping[str, Composite]) -> Any:
    """A region of one composite goes by that composite's symbol, so that a profile finds it."""
    import tvm
    from tvm import relax

    names: dict[Any, Any] = {}
    for gvar, function in module.functions.items():
        owner = str((function.attrs or {}).get("Codegen", ""))
        symbol = gvar.name_hint.removeprefix("fused_").removesuffix(f"_{owner}")
        if owner and symbol in composites and symbol != gvar.name_hint:
            names[gvar] = relax.GlobalVar(symbol)
    if not names:
        return module

    @relax.expr_functor.mutator
    class Rename(relax.PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: Any) -> Any:
            call = super().visit_call_(call)
            return relax.Call(names[call.op], call.args) if call.op in names else call

    for old, new in names.items():
        relax.expr._update_type(new, old.ty)
    functions = {g: f for g, f in module.functions.items() if g not in names}
    functions |= {
        new: module[old].with_attr("global_symbol", new.name_hint) for old, new in names.items()
    }
    main = next(g for g in functions if g.name_hint == "main")
    functions[main] = Rename(module).visit_expr(functions[main])
    return tvm.IRModule(functions, attrs=module.attrs)
