"""Weight expressions evaluated by numpy.

FoldConstant compiles a kernel for every expression it evaluates: 12 of resnet50's 14 seconds of
lowering. The few elementwise and layout ops that batch norms and reshaped weights leave behind
are exact in numpy and take microseconds; FoldConstant gets what is not in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from autosplit.extras import relax, tvm
from autosplit.frontend.relax.expressions import is_constant, variables
from autosplit.frontend.relax.main_function import bindings, rebind, with_main

Array = np.ndarray[Any, np.dtype[Any]]

_BINARY: Mapping[str, Callable[[Array, Array], Array]] = {
    "relax.add": np.add,
    "relax.subtract": np.subtract,
    "relax.multiply": np.multiply,
    "relax.divide": np.divide,
}
_RESHAPED = ("relax.reshape", "relax.expand_dims", "relax.squeeze")
_FULL = ("relax.full", "relax.full_like")
_FOLDED = {*_BINARY, *_RESHAPED, *_FULL, "relax.broadcast_to", "relax.sqrt", "relax.permute_dims"}


def fold_weights(module: Any) -> Any:
    """Replace what ``main`` computes from constants alone by its value, as far as numpy can."""

    @relax.expr_functor.mutator
    class Fold(relax.PyExprMutator):  # type: ignore[misc]
        def __init__(self, mod: Any) -> None:
            super().__init__(mod)
            self.constants: dict[Any, Any] = {}

        def visit_var_binding_(self, binding: Any) -> None:
            value = self.visit_expr(binding.value)
            constant = _folded(value, binding.var.ty)
            if constant is not None and isinstance(binding.var, relax.DataflowVar):
                self.constants[binding.var] = constant
            elif value.same_as(binding.value):
                self.builder_.emit_normalized(binding)
            else:
                rebind(self, binding.var, value, binding.var.name)

        def visit_var_(self, var: Any) -> Any:
            return self.constants.get(var) or super().visit_var_(var)

        def visit_dataflow_var_(self, var: Any) -> Any:
            return self.constants.get(var) or super().visit_dataflow_var_(var)

    return with_main(module, Fold(module).visit_expr(module["main"]))


def fold_others(module: Any) -> Any:
    """Run FoldConstant where a call of ``main`` reads constants alone.

    Where none does it changes nothing, in a millisecond a call.
    """
    constants: set[Any] = set()
    for binding in bindings(module["main"]):
        if constants.issuperset(variables(binding.value)):
            if isinstance(binding.value, relax.Call):
                return relax.transform.FoldConstant()(module)
            constants.add(binding.var)
    return module


def _folded(value: Any, kind: Any) -> Any:
    """The constant that a call on constants comes to, None where it is no such call."""
    name = str(getattr(value.op, "name", "")) if isinstance(value, relax.Call) else ""
    if name not in _FOLDED or not isinstance(kind, relax.TensorType):
        return None
    dtype = str(kind.dtype)
    arrays = _arrays(name, value, dtype)
    if not arrays or any(str(array.dtype) != dtype for array in arrays):
        return None
    if not hasattr(kind.shape, "values"):
        return None
    shape = tuple(map(int, kind.shape))
    result = _evaluate(name, arrays, shape, value)
    if result.shape != shape or str(result.dtype) != dtype:
        return None
    return relax.const(tvm.runtime.tensor(np.asarray(result, order="C")))


def _arrays(name: str, call: Any, dtype: str) -> list[Array] | None:
    """The values that a call reads, None where one of them is no constant."""
    arguments = list(call.args)
    if name == "relax.full_like":
        # The first argument gives the shape alone.
        arguments = arguments[1:]
    arrays: list[Array] = []
    for argument in arguments:
        if isinstance(argument, relax.ShapeExpr):
            continue
        array = _array(argument, dtype)
        if array is None:
            return None
        arrays.append(array)
    if name not in _FULL:
        return arrays
    # LegalizeOps fails at infinities and NaN alone; other fills stay small as they are.
    fills = [a for a in arrays if a.dtype.kind == "f" and not np.isfinite(a).all()]
    return [fill.astype(dtype) for fill in fills]


def _array(value: Any, dtype: str) -> Array | None:
    """The value of a constant, or, as ``dtype``, of a scalar that is written as a number."""
    if is_constant(value):
        return np.asarray(value.value.numpy())
    if isinstance(value, tvm.tirx.FloatImm | tvm.tirx.IntImm):
        return np.asarray(value.value, dtype=dtype)
    return None


def _evaluate(name: str, arrays: list[Array], shape: tuple[int, ...], call: Any) -> Array:
    with np.errstate(all="ignore"):
        if name in _BINARY:
            return np.asarray(_BINARY[name](*arrays))
        if name == "relax.sqrt":
            return np.asarray(np.sqrt(arrays[0]))
    if name == "relax.permute_dims":
        axes = call.attrs.axes if call.attrs is not None else None
        return np.transpose(arrays[0], None if axes is None else [int(a) for a in axes])
    if name in _RESHAPED:
        return arrays[0].reshape(shape)
    return np.broadcast_to(arrays[0], shape)
