"""Constant folding with numpy.

FoldConstant compiles a kernel for every expression that it evaluates, which takes 12 of the 14
seconds of lowering resnet50. The few elementwise and layout ops that batch norms and reshaped
weights leave behind are exact in numpy and take microseconds; FoldConstant gets all other ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autosplit.extras import relax, tvm, tvm_ffi
from autosplit.frontend.relax.expressions import fixed_sizes, is_constant, operator, variables
from autosplit.frontend.relax.main_function import bindings, rebind, with_bindings, with_main

Array = np.ndarray[Any, np.dtype[Any]]

_BINARY = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide}
_RESHAPED = ("reshape", "expand_dims", "squeeze", "shape_to_tensor")
_FULL = ("full", "full_like")
_FOLDED = {*_BINARY, *_RESHAPED, *_FULL, "broadcast_to", "permute_dims", "sqrt", "strided_slice"}


def fold_weights(module: Any) -> Any:
    """Replace expressions of constants in ``main`` by their values, where numpy computes them."""
    return _with_constants(module, lambda var, value: _folded(value, var.ty))


def fold_others(module: Any) -> Any:
    """Replace the remaining expressions of constants in ``main`` by FoldConstant's values.

    FoldConstant is given only these calls, because it lowers every call that it sees.
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
    constants: dict[Any, Any] = {}

    def fold(mutator: Any, binding: Any) -> bool:
        value = binding.value
        if not constants.keys().isdisjoint(variables(value)):
            value = tvm_ffi.structural_map(value, (relax.Var, lambda v: constants.get(v, v)))
        constant = constant_of(binding.var, value)
        if constant is not None and isinstance(binding.var, relax.DataflowVar):
            constants[binding.var] = constant
        elif value is not binding.value:
            rebind(mutator, binding.var, mutator.visit_expr(value))
        else:
            return False
        return True

    return with_bindings(module, fold)


def _folded(value: Any, kind: Any) -> Any:
    """The constant or shape that a call evaluates to; None for a call that is not folded here."""
    name = operator(value)
    if name == "shape_of":
        sizes = fixed_sizes(value.args[0].ty)
        return None if sizes is None else relax.ShapeExpr(sizes)
    if name not in _FOLDED or not hasattr(getattr(kind, "shape", None), "values"):
        return None
    dtype, shape = str(kind.dtype), tuple(map(int, kind.shape))
    # Further arguments of ops with one operand give a shape or the bounds of a slice.
    operand = value.args[1 if name in _FULL else 0]
    operands = list(value.args) if name in _BINARY else [operand]
    arrays = [_array(operand, dtype) for operand in operands]
    if name in _FULL:
        arrays = [a.astype(dtype) for a in arrays if a is not None and _breaks_legalizing(a)]
    if not arrays or any(array is None or str(array.dtype) != dtype for array in arrays):
        return None
    with np.errstate(all="ignore"):
        result = np.asarray(_evaluate(name, arrays, shape, value), order="C")
    if result.shape != shape or str(result.dtype) != dtype:
        return None
    return relax.const(tvm.runtime.tensor(result))


def _array(value: Any, dtype: str) -> Array | None:
    """The array of a constant, or of a number or shape as ``dtype``; None for anything else."""
    if is_constant(value):
        return np.asarray(value.value.numpy())
    if isinstance(value, tvm.tirx.FloatImm | tvm.tirx.IntImm):
        return np.asarray(value.value, dtype=dtype)
    sizes = fixed_sizes(value) if isinstance(value, relax.ShapeExpr) else None
    return None if sizes is None else np.array(sizes, dtype)


def _breaks_legalizing(fill: Array) -> bool:
    """Whether LegalizeOps fails on a fill value (infinity, NaN); all others stay small unfolded."""
    return fill.dtype.kind == "f" and not bool(np.isfinite(fill).all())


def _evaluate(name: str, arrays: Sequence[Any], shape: tuple[int, ...], call: Any) -> Any:
    if name in _BINARY:
        return _BINARY[name](*arrays)
    (array,) = arrays
    if name == "sqrt":
        return np.sqrt(array)
    if name == "permute_dims":
        axes = call.attrs.axes if call.attrs is not None else None
        return np.transpose(array, None if axes is None else [int(a) for a in axes])
    if name == "strided_slice":
        axes, begin, end, *strides = ([int(i) for i in numbers] for numbers in call.args[1:])
        slices = [slice(None)] * array.ndim
        for axis, *bounds in zip(axes, begin, end, *strides, strict=True):
            slices[axis] = slice(*bounds)
        return array[tuple(slices)]
    return array.reshape(shape) if name in _RESHAPED else np.broadcast_to(array, shape)
