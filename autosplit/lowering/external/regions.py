"""The composites of one stage merged into regions and compiled by their backends.

TVM's contract: a region is a function with the attribute ``Codegen``; its layers are local
functions with the attribute ``Composite``, which hold no further function. Equal layers share one
function.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autosplit.errors import MachineError, explained
from autosplit.extras import relax, transform, tvm
from autosplit.frontend.relax.main_function import with_calls
from autosplit.lowering.external.composites import Composite, call_by_symbol


def generate(
    module: Any, composites: Mapping[str, Composite], names: Mapping[str, str], merge: bool
) -> Any:
    """The stage's module with its regions compiled, in the attribute ``external_mods``.

    ``names`` maps the symbol of each composite to the name of its op, for messages. Neighbouring
    composites of one backend become one region unless the backend or ``merge`` forbids it; a
    composite that stays alone has the symbol ``Composite.region``. Raises MachineError, naming the
    ops, where a code generator is missing or fails.
    """
    _require_generators(composites, names)
    alone = {s for s, c in composites.items() if not (merge and c.backend.merge)}
    # TVM merges all composites that it sees, so those that stay alone become regions before.
    module = transform.MergeCompositeFunctions()(_with_functions(module, composites, alone))
    backends = ", ".join(sorted({c.backend.name for c in composites.values()}))
    problem = f"backend {backends} cannot compile ops {', '.join(names.values())}"
    with explained(MachineError, problem):
        return transform.RunCodegen()(with_calls(module, _by_symbol))


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
    """The module with composites called as functions; those in ``alone`` are called as regions.

    Kernels are called directly, since the pass that merges cannot walk over ``call_dps_packed``.
    """

    def restore(mutator: Any, call: Any) -> Any:
        symbol: Any = getattr(call.args[0], "global_symbol", None) if call.args else None
        if symbol is None:
            return call
        callee, arguments = call.args[0], list(call.args[1].fields)
        if symbol not in composites:
            return relax.Call(callee, arguments, None, call.ty_args)
        function = composites[symbol].function
        region = _region(function, str(symbol)) if symbol in alone else function
        return relax.Call(mutator.builder_.add_func(region, str(symbol)), arguments)

    return with_calls(module, restore)


def _by_symbol(_: Any, call: Any) -> Any:
    """Turn a direct call of a kernel into ``call_dps_packed``; return other calls as they are."""
    if not isinstance(call.op, relax.ExternFunc):
        return call
    return call_by_symbol(call.op, list(call.args), call.ty_args[0])


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
