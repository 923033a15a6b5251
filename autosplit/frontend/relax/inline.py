"""The functions of a Relax module put inside the one that is split."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autosplit.errors import ModelError, line_of
from autosplit.frontend.relax.shapes import ENTRY


def inlined(module: Any) -> Any:
    """The module with every Relax function that ``main`` calls inside ``main``.

    Raises ModelError where there is no ``main``, or a function calls itself.
    """
    import tvm
    from tvm import relax

    functions = {
        g.name_hint: f for g, f in module.functions.items() if isinstance(f, relax.Function)
    }
    if ENTRY not in functions:
        known = ", ".join(sorted(functions)) or "no Relax function"
        raise ModelError(
            f"the module has no function '{ENTRY}' (it has {known}); name the one to split '{ENTRY}'"
        )
    others = {
        g: f
        for g, f in module.functions.items()
        if isinstance(f, relax.Function) and g.name_hint != ENTRY
    }
    try:
        main = functions[ENTRY].inline_functions(others) if others else functions[ENTRY]
    except Exception as error:
        names = ", ".join(sorted(g.name_hint for g in others))
        raise ModelError(
            f"functions {names} cannot be put inside '{ENTRY}': {line_of(error, last=True)}"
        ) from error
    _require_no_recursion(main, functions)
    if not others:
        return module
    kept = {g: f for g, f in module.functions.items() if g not in others}
    gvar = next(g for g in kept if g.name_hint == ENTRY)
    return tvm.IRModule({**kept, gvar: main}, attrs=module.attrs)


def _require_no_recursion(main: Any, functions: Mapping[str, Any]) -> None:
    """Raises ModelError where a call of one of the module's functions is left in ``main`` with all that it calls inside."""
    import tvm
    from tvm import relax

    called: list[str] = []

    def call(node: Any) -> None:
        if (
            isinstance(node, relax.Call)
            and isinstance(node.op, tvm.ir.GlobalVar)
            and node.op.name_hint in functions
        ):
            called.append(str(node.op.name_hint))

    relax.analysis.post_order_visit(main, call)
    if called:
        raise ModelError(
            f"function '{called[0]}' of the module calls itself, which cannot be split; unroll the calls"
        )
