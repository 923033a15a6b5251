"""The composites of one stage merged into regions and compiled by their backends.

TVM's contract: a region is a function with the attribute ``Codegen``; its layers are local
functions with the attribute ``Composite``, which hold no further function. Calls of equal layers
share one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autosplit.errors import MachineError, line_of
from autosplit.extras import relax, transform, tvm
from autosplit.frontend.relax.main_function import with_calls, with_main
from autosplit.lowering.external.composites import Composite, call_by_symbol

_STANDS_FOR = "autosplit.stands_for"


def generate(
    module: Any, composites: Mapping[str, Composite], names: Mapping[str, str], merge: bool
) -> tuple[Any, list[Any]]:
    """The stage's module with its regions compiled, and the runtime modules that hold them.

    ``names`` maps the symbol of each composite to the name of its op, for messages. Neighbouring
    composites of one backend become one region unless the backend or ``merge`` forbids it; one that
    stays alone has the symbol ``Composite.region``. Raises MachineError, naming the ops, where a
    code generator is missing or fails.
    """
    _require_generators(composites, names)
    alone = {s for s, c in composites.items() if not (merge and c.backend.merge)}
    # TVM merges what it is given, so composites that stay alone are regions before it runs.
    module = transform.MergeCompositeFunctions()(_with_functions(module, composites, alone))
    module = _with_symbols(module)
    try:
        module = transform.RunCodegen()(module)
    except Exception as error:
        backends = ", ".join(sorted({c.backend.name for c in composites.values()}))
        reason = line_of(error, last=True)
        raise MachineError(
            f"backend {backends} cannot compile ops {', '.join(names.values())}: {reason}"
        ) from error
    return module, list((module.attrs or {}).get("external_mods", []))


def _require_generators(composites: Mapping[str, Composite], names: Mapping[str, str]) -> None:
    for backend in sorted({c.backend.name for c in composites.values()}):
        if tvm.get_global_func(f"relax.ext.{backend}", allow_missing=True) is None:
            ops = [names[s] for s, c in composites.items() if c.backend.name == backend]
            raise MachineError(
                f"backend '{backend}' has no code generator for ops {', '.join(ops)}; "
                f"register relax.ext.{backend}, use a TVM built with it, "
                "or load the model without the backend"
            )


def _with_functions(module: Any, composites: Mapping[str, Composite], alone: set[str]) -> Any:
    """The module with its calls by symbol as calls of functions.

    Composites of ``alone`` are regions already. Kernels get stand-ins, since the pass that merges
    cannot walk over a call by symbol; ``_with_symbols`` takes these out again.
    """

    def function_of(symbol: str, kinds: Sequence[Any], result: Any) -> Any:
        if symbol not in composites:
            return _stand_in(symbol, kinds, result)
        function = composites[symbol].function
        return _region(function, symbol) if symbol in alone else function

    @relax.expr_functor.mutator
    class Restore(relax.PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: Any) -> Any:
            call = super().visit_call_(call)
            symbol: Any = getattr(call.args[0], "global_symbol", None) if call.args else None
            if symbol is None:
                return call
            arguments = list(call.args[1].fields)
            function = function_of(str(symbol), [a.ty for a in arguments], call.ty_args[0])
            return relax.Call(self.builder_.add_func(function, str(symbol)), arguments)

    restore = Restore(module)
    main = restore.visit_expr(module["main"])
    return with_main(restore.builder_.get(), main)


def _stand_in(symbol: str, kinds: Sequence[Any], result: Any) -> Any:
    """A function of a kernel's type that says which symbol it stands for."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"p{i}", kind) for i, kind in enumerate(kinds)]
    is_tuple = isinstance(result, relax.TupleType)
    fields = list(result.fields) if is_tuple else [result]
    with builder.function("main", params):
        # The body is never run; it only has to have the kernel's type.
        zeros = [builder.emit(relax.op.zeros(f.shape, f.dtype)) for f in fields]
        builder.emit_func_output(relax.Tuple(zeros) if is_tuple else zeros[0])
    return builder.get()["main"].without_attr("global_symbol").with_attr(_STANDS_FOR, symbol)


def _with_symbols(module: Any) -> Any:
    """The module with calls by symbol in place of the stand-ins."""
    stands_for = {}
    for gvar, function in module.functions.items():
        if _STANDS_FOR in (function.attrs or {}):
            stands_for[gvar] = str(function.attrs[_STANDS_FOR])

    def by_symbol(call: Any) -> Any:
        if call.op not in stands_for:
            return call
        return call_by_symbol(stands_for[call.op], list(call.args), call.op.ty.ret)

    return with_calls(module, by_symbol, without=stands_for)


def _region(function: Any, symbol: str) -> Any:
    """The region of one composite alone, made by the pass that makes all regions."""
    builder = relax.BlockBuilder()
    layer = builder.add_func(function, symbol)
    params = [relax.Var(p.name, p.ty) for p in function.params]
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(relax.Call(layer, params))
        builder.emit_func_output(result)
    merged = transform.MergeCompositeFunctions()(builder.get())
    return next(f for f in merged.functions.values() if "Codegen" in (f.attrs or {}))
