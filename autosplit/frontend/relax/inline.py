"""Puts the functions of a Relax module inside ``main``, the one that is split."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autosplit.errors import ModelError, line_of
from autosplit.frontend.relax.shapes import ENTRY


def inlined(module: Any) -> Any:
    """The module with every Relax function that ``main`` calls inside ``main``.

    Raises:
        ModelError: There is no ``main``, or a function calls itself.
    """
    import tvm
    from tvm import relax

    functions = {
        variable.name_hint: (variable, function)
        for variable, function in module.functions.items()
        if isinstance(function, relax.Function)
    }
    if ENTRY not in functions:
        names = ", ".join(sorted(functions)) or "no Relax function"
        raise ModelError(
            f"the module has no function '{ENTRY}' (it has {names}); "
            f"name the one to split '{ENTRY}'"
        )
    main_variable, main = functions[ENTRY]
    callees = dict(pair for name, pair in functions.items() if name != ENTRY)
    if callees:
        try:
            main = main.inline_functions(callees)
        except Exception as error:
            names = ", ".join(sorted(variable.name_hint for variable in callees))
            reason = line_of(error, last=True)
            raise ModelError(
                f"functions {names} cannot be put inside '{ENTRY}': {reason}"
            ) from error
    _require_no_recursion(main, functions)
    if not callees:
        return module
    remaining = {g: f for g, f in module.functions.items() if g not in callees}
    return tvm.IRModule({**remaining, main_variable: main}, attrs=module.attrs)


def _require_no_recursion(main: Any, functions: Mapping[str, Any]) -> None:
    """Raise ModelError if ``main``, with its callees inside, still calls one of ``functions``."""
    import tvm
    from tvm import relax

    called: list[str] = []

    def note_call(node: Any) -> None:
        is_call = isinstance(node, relax.Call) and isinstance(node.op, tvm.ir.GlobalVar)
        if is_call and node.op.name_hint in functions:
            called.append(str(node.op.name_hint))

    relax.analysis.post_order_visit(main, note_call)
    if called:
        raise ModelError(
            f"function '{called[0]}' of the module calls itself, which cannot be split; "
            "unroll the calls"
        )
