"""Reads and rewrites the function ``main`` of a Relax module: its bindings and their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autosplit.errors import ModelError
from autosplit.frontend.relax.shapes import ENTRY


def bindings(function: Any) -> list[Any]:
    """The bindings of a Relax function in order. Raises ModelError if it has control flow."""
    from tvm import relax

    if not isinstance(function.body, relax.SeqExpr):
        raise ModelError(
            f"the module's function '{ENTRY}' is not a sequence of bindings; normalise it first"
        )
    in_order = [binding for block in function.body.blocks for binding in block.bindings]
    for binding in in_order:
        if isinstance(getattr(binding, "value", None), relax.If):
            raise ModelError(
                f"variable '{binding.var.name}' is bound to control flow (If), "
                "which cannot be split"
            )
    return in_order


def renamed(module: Any, names: Mapping[Any, str]) -> Any:
    """The module with the variables of ``main`` in ``names`` renamed."""
    from tvm import relax

    @relax.expr_functor.mutator
    class Rename(relax.PyExprMutator):  # type: ignore[misc]
        def visit_var_binding_(self, binding: Any) -> None:
            if binding.var in names:
                rebind(self, binding.var, self.visit_expr(binding.value), names[binding.var])
            else:
                super().visit_var_binding_(binding)

    return with_main(module, Rename(module).visit_expr(module[ENTRY]))


def rebind(mutator: Any, var: Any, value: Any, name: str) -> None:
    """Inside a mutator, bind ``value`` to a variable called ``name`` that replaces ``var``."""
    from tvm import relax

    value = mutator.builder_.normalize(value)
    kind = relax.DataflowVar if isinstance(var, relax.DataflowVar) else relax.Var
    replacement = kind(name, value.ty)
    mutator.set_var_remap(var.vid if hasattr(var, "vid") else var, replacement)
    mutator.builder_.emit_normalized(relax.VarBinding(replacement, value))


def with_main(module: Any, main: Any) -> Any:
    """A copy of the module with another ``main``."""
    import tvm

    functions = {g: main if g.name_hint == ENTRY else f for g, f in module.functions.items()}
    return tvm.IRModule(functions, attrs=module.attrs)
