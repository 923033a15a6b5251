"""Weight expressions evaluated by numpy.

FoldConstant compiles a kernel for every expression it evaluates: 12 of resnet50's 14 seconds of lowering. The handful of
elementwise and layout ops that batch norms and reshaped weights leave behind are exact in numpy and take microseconds;
whatever is not in the table stays for FoldConstant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from autosplit.frontend.relax.main_function import rebind, with_main

Array = np.ndarray[Any, np.dtype[Any]]

_BINARY: Mapping[str, Callable[[Array, Array], Array]] = {
    "relax.add": np.add,
    "relax.subtract": np.subtract,
    "relax.multiply": np.multiply,
    "relax.divide": np.divide,
}
_SHAPED = {"relax.reshape", "relax.expand_dims", "relax.squeeze", "relax.broadcast_to"}
_FULL = (
    "relax.full",
    "relax.full_like",
)  # folded where it fills with an infinity or a NaN, which LegalizeOps fails at


def fold_weights(module: Any) -> Any:
    """Replace what ``main`` computes from constants alone, as far as the table goes, by its value."""
    from tvm import relax

    @relax.expr_functor.mutator
    class Fold(relax.PyExprMutator):  # type: ignore[misc]
        def __init__(self, mod: Any) -> None:
            super().__init__(mod)
            self.known: dict[Any, Any] = {}

        def visit_var_binding_(self, binding: Any) -> None:
            value = self.visit_expr(binding.value)
            folded = _folded(value, binding.var.ty)
            if folded is not None and isinstance(binding.var, relax.DataflowVar):
                self.known[binding.var] = folded
            elif value.same_as(binding.value):
                self.builder_.emit_normalized(binding)
            else:
                rebind(self, binding.var, value, binding.var.name)

        def visit_var_(self, var: Any) -> Any:
            return self.known.get(var) or super().visit_var_(var)

        def visit_dataflow_var_(self, var: Any) -> Any:
            return self.known.get(var) or super().visit_dataflow_var_(var)

    return with_main(module, Fold(module).visit_expr(module["main"]))


def _folded(value: Any, kind: Any) -> Any:
    """The constant a call on constants comes to, None where it is no such call or not in the table."""
    import tvm
    from tvm import relax

    name = str(getattr(value.op, "name", "")) if isinstance(value, relax.Call) else ""
    if (
        name not in _BINARY
        and name not in _SHAPED
        and name not in ("relax.sqrt", "relax.permute_dims", *_FULL)
    ):
        return None
    tensors = [
        a for a in value.args[name == "relax.full_like" :] if not isinstance(a, relax.ShapeExpr)
    ]
    if not isinstance(kind, relax.TensorType):
        return None
    arrays = [a for a in (_array(t, str(kind.dtype)) for t in tensors) if a is not None]
    if len(arrays) != len(tensors):
        return None
    if name in _FULL:
        arrays = [
            a.astype(str(kind.dtype))
            for a in arrays
            if a.dtype.kind == "f" and not np.isfinite(a).all()
        ]
    shape = (
        tuple(int(s.value) for s in kind.shape.values) if hasattr(kind.shape, "values") else None
    )
    if shape is None or not arrays or not all(str(a.dtype) == str(kind.dtype) for a in arrays):
        return None
    result = _evaluate(name, arrays, shape, value)
    same = result.shape == shape and str(result.dtype) == str(kind.dtype)
    return relax.const(tvm.runtime.tensor(np.ascontiguousarray(result))) if same else None


def _evaluate(name: str, arrays: list[Any], shape: tuple[int, ...], call: Any) -> Array:
    with np.errstate(all="ignore"):
        if name in _BINARY:
            return np.asarray(_BINARY[name](*arrays))
        if name == "relax.sqrt":
            return np.asarray(np.sqrt(arrays[0]))
    if name == "relax.permute_dims":
        axes = call.attrs.axes if call.attrs is not None else None
        return np.asarray(np.transpose(arrays[0], None if axes is None else [int(a) for a in axes]))
    if name in ("relax.broadcast_to", *_FULL):
        return np.asarray(np.broadcast_to(arrays[0], shape))
    return np.asarray(arrays[0]).reshape(shape)


def _array(value: Any, dtype: str) -> Array | None:
    """The value of a constant, or, as ``dtype``, of a scalar that is written as a number."""
    import tvm

    if isinstance(value, tvm.ir.GenericConst):
        return np.asarray(value.value.numpy())
    if isinstance(value, tvm.tirx.FloatImm | tvm.tirx.IntImm):
        return np.asarray(value.value, dtype=dtype)
    return None
