"""Weight expressions evaluated by numpy.

FoldConstant compiles a kernel for every expression it evaluates: 12 of resnet50's 14 seconds of
lowering. The few elementwise and layout ops that batch norms and reshaped weights leave behind
are exact in numpy and take microseconds; FoldConstant gets what is not in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from autosplit.extras import relax, tvm
from autosplit.frontend.relax.expressions import fixed_sizes, is_constant, variables
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
_FOLDED = {
    *(*_BINARY, *_RESHAPED, *_FULL, "relax.broadcast_to", "relax.sqrt", "relax.permute_dims"),
    *("relax.shape_to_tensor", "relax.strided_slice"),
}


def fold_weights(module: Any) -> Any:
    """Replace what ``main`` computes from constants alone by its value, as far as numpy can."""
    return _with_constants(module, lambda var, value: _folded(value, var.ty))


def fold_others(module: Any) -> Any:
    """Replace what ``main`` computes from constants alone by FoldConstant's values.

    FoldConstant gets those calls alone, because it lowers every call that it sees.
    """
    of_constants: dict[Any, Any] = {}  # binding by variable
    for binding in bindings(module["main"]):
        if of_constants.keys() >= set(variables(binding.value)):
            of_constants[binding.var] = binding
    if not any(isinstance(binding.value, relax.Call) for binding in of_constants.values()):
        return module
    values = relax.Tuple(list(of_constants))
    result = relax.Var("result", values.ty)
    block = relax.DataflowBlock([*of_constants.values(), relax.VarBinding(result, values)])
    alone = relax.Function([], relax.SeqExpr([block], result), result.ty)
    folded = bindings(relax.transform.FoldConstant()(with_main(module, alone))["main"])[-1].value
    pairs = zip(of_constants, folded.fields, strict=True)
    constants = {var: value for var, value in pairs if is_constant(value)}
    return _with_constants(module, lambda var, value: constants.get(var))


def _with_constants(module: Any, constant_of: Callable[[Any, Any], Any]) -> Any:
    """The module with variables of ``main`` replaced by constants.

    ``constant_of`` gets a variable and its value, and returns None where the variable stays.
    """

    @relax.expr_functor.mutator
    class Fold(relax.PyExprMutator):  # type: ignore[misc]
        def __init__(self, mod: Any) -> None:
            super().__init__(mod)
            self.constants: dict[Any, Any] = {}

        def visit_var_binding_(self, binding: Any) -> None:
            value = self.visit_expr(binding.value)
            constant = constant_of(binding.var, value)
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


def _folded(value: Any, kind: Any) -> Any:
    """The constant, or the shape, that a call comes to; None where it is no such call."""
    name = str(getattr(value.op, "name", "")) if isinstance(value, relax.Call) else ""
    if name == "relax.shape_of":
        sizes = fixed_sizes(value.args[0].ty)
        return None if sizes is None else relax.ShapeExpr(sizes)
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
    if name == "relax.strided_slice":
        arguments = arguments[:1]  # the others are numbers
    if name == "relax.shape_to_tensor":
        sizes = fixed_sizes(arguments[0])
        return None if sizes is None else [np.array(sizes, dtype)]
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
    if name == "relax.shape_to_tensor":
        return arrays[0]
    if name == "relax.strided_slice":
        return _sliced(arrays[0], *([int(i) for i in numbers] for numbers in call.args[1:]))
    if name in _RESHAPED:
        return arrays[0].reshape(shape)
    return np.broadcast_to(arrays[0], shape)


def _sliced(
    array: Array, axes: list[int], begin: list[int], end: list[int], strides: Sequence[int] = ()
) -> Array:
    slices = [slice(None)] * array.ndim
    for axis, *bounds in zip(axes, begin, end, strides or [1] * len(axes), strict=True):
        slices[axis] = slice(*bounds)
    return array[tuple(slices)]
