"""Sums of several tensors as additions.

An importer writes ONNX's ``Sum`` as ``sum(stack(broadcast_to(...)))``, which copies every operand
and which no pass fuses.
"""

from __future__ import annotations

from typing import Any

from autosplit.frontend.relax.main_function import bindings, rebind, with_main


def add_for_sum(module: Any) -> Any:
    """The module with each such sum of ``main`` as a chain of ``add``."""
    from tvm import relax

    values = _values(module)
    if not any(_operands(value, values) for value in values.values()):
        return module

    @relax.expr_functor.mutator
    class Replace(relax.PyExprMutator):  # type: ignore[misc]
        def __init__(self, mod: Any) -> None:
            super().__init__(mod)
            # TVM never frees a mutator's class, and with it what its methods refer to: here that
            # would be every weight.
            self.values = _values(mod)

        def visit_var_binding_(self, binding: Any) -> None:
            operands = _operands(binding.value, self.values)
            if not operands:
                super().visit_var_binding_(binding)
                return
            total, *others = [self.visit_expr(operand) for operand in operands]
            for operand in others[:-1]:
                total = self.builder_.emit(relax.op.add(total, operand))
            if others:
                total = relax.op.add(total, others[-1])
            rebind(self, binding.var, total, binding.var.name)

    return with_main(module, Replace(module).visit_expr(module["main"]))


def _values(module: Any) -> dict[Any, Any]:
    """What each variable of ``main`` is bound to."""
    return {b.var: getattr(b, "value", None) for b in bindings(module["main"])}


def _operands(value: Any, values: dict[Any, Any]) -> list[Any]:
    """The tensors that a bound value adds up, none where it is no such sum."""
    if _name(value) != "relax.sum" or value.attrs.keepdims:
        return []
    stack: Any = values.get(value.args[0])
    if _name(stack) != "relax.stack" or int(stack.attrs.axis or 0) != 0:
        return []
    if [int(axis) for axis in value.attrs.axis or ()] != [0]:
        return []
    fields = values.get(stack.args[0], stack.args[0])
    return [_unbroadcast(field, values) for field in getattr(fields, "fields", ())]


def _unbroadcast(operand: Any, values: dict[Any, Any]) -> Any:
    import tvm_ffi

    value: Any = values.get(operand)
    is_broadcast = _name(value) == "relax.broadcast_to"
    if is_broadcast and tvm_ffi.structural_equal(value.args[0].ty, value.ty):
        return value.args[0]
    return operand


def _name(value: Any) -> str:
    return str(getattr(getattr(value, "op", None), "name", ""))
