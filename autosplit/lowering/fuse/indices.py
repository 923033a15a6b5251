"""Indices that stay inside the tensor they look into.

TVM's kernel of ``take`` does not check its indices; one that is out of bounds reads memory that
is not the tensor's.
"""

from __future__ import annotations

from typing import Any

from autosplit.frontend.relax.main_function import bindings, rebind, with_main


def bound_indices(module: Any) -> Any:
    """Have each unchecked ``take`` of ``main`` take the nearest element for an index out of bounds.

    Other calls and other modes stay as they are.
    """
    from tvm import relax

    @relax.expr_functor.mutator
    class Bound(relax.PyExprMutator):  # type: ignore[misc]
        def visit_var_binding_(self, binding: Any) -> None:
            value = self.visit_expr(binding.value)
            if _is_unchecked(value):
                value = relax.op.take(*value.args, value.attrs.axis, mode="clip")
            if value.same_as(binding.value):
                self.builder_.emit_normalized(binding)
            else:
                rebind(self, binding.var, value, binding.var.name)

    main = module["main"]
    if not any(_is_unchecked(getattr(b, "value", None)) for b in bindings(main)):
        return module
    return with_main(module, Bound(module).visit_expr(main))


def _is_unchecked(value: Any) -> bool:
    from tvm import relax

    is_take = isinstance(value, relax.Call) and getattr(value.op, "name", "") == "relax.take"
    return is_take and str(value.attrs.mode) == "fast"
