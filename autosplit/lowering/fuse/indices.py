"""Indices that stay inside the tensor they look into.

TVM's kernel of ``take`` does not look whether an index is one; another index reads memory that is not the tensor's.
"""

from __future__ import annotations

from typing import Any

from autosplit.frontend.relax.main_function import rebind, with_main


def bound_indices(module: Any) -> Any:
    """Have each ``take`` of ``main`` that does not look at its indices take the nearest element for one out of bounds."""
    from tvm import relax

    @relax.expr_functor.mutator
    class Bound(relax.PyExprMutator):  # type: ignore[misc]
        def visit_var_binding_(self, binding: Any) -> None:
            value = self.visit_expr(binding.value)
            if _is_careless(value):
                value = relax.op.take(*value.args, value.attrs.axis, mode="clip")
            if value.same_as(binding.value):
                self.builder_.emit_normalized(binding)
            else:
                rebind(self, binding.var, value, binding.var.name)

    main = module["main"]
    if not any(_is_careless(b.value) for block in main.body.blocks for b in block.bindings):
        return module
    return with_main(module, Bound(module).visit_expr(main))


def _is_careless(value: Any) -> bool:
    from tvm import relax

    return (
        isinstance(value, relax.Call)
        and getattr(value.op, "name", "") == "relax.take"
        and value.attrs.mode == "fast"
    )
