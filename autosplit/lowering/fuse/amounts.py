"""What tensors, constants and kernels amount to: shapes, bytes and arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autosplit.errors import ModelError
from autosplit.frontend.relax.main_function import bindings


def static_shape(name: str, kind: Any) -> tuple[int, ...]:
    """The shape of a tensor of type ``kind``. Raises ModelError naming it where it is no tensor of a shape known now."""
    from tvm import relax

    sizes = (
        getattr(getattr(kind, "shape", None), "values", None)
        if isinstance(kind, relax.TensorType)
        else None
    )
    if sizes is None or not all(hasattr(s, "value") for s in sizes):
        raise ModelError(
            f"tensor '{name}' has a shape known only at run time ({kind}); give static shapes by --shape"
        )
    return tuple(int(s.value) for s in sizes)


def size_of(shape: tuple[int, ...], dtype: str) -> int:
    """The bytes of a dense tensor, whole bytes an element."""
    import tvm

    count = 1
    for size in shape:
        count *= size
    kind = tvm.DataType(dtype)
    return count * ((int(kind.bits) * int(kind.lanes) + 7) // 8)


def bytes_of(values: Iterator[Any]) -> int:
    """The bytes of constants, each counted once."""
    unique = {value: value for value in values}
    return sum(size_of(tuple(map(int, v.value.shape)), str(v.value.dtype)) for v in unique.values())


def dtypes_of(function: Any) -> frozenset[str]:
    """The element types of all that a Relax function binds."""
    return frozenset(str(kind.dtype) for b in bindings(function) for kind in tensor_types(b.var.ty))


def tensor_types(kind: Any) -> list[Any]:
    """The types of the tensors in a Relax type: itself, or the fields of a tuple."""
    from tvm import relax

    fields = kind.fields if isinstance(kind, relax.TupleType) else (kind,)
    return [f for f in fields if isinstance(f, relax.TensorType)]


def is_constant(value: Any) -> bool:
    """Whether a Relax expression is a constant."""
    import tvm

    return isinstance(value, tvm.ir.GenericConst)


def flops_of(function: Any) -> float:
    """The floating-point operations of one call of a PrimFunc, 0 where TVM cannot tell."""
    import tvm
    from tvm.s_tir.analysis import estimate_tir_flops

    try:
        return float(estimate_tir_flops(tvm.IRModule({"main": function})))
    except (RuntimeError, ValueError, TypeError):
        return 0.0  # an external kernel, or one whose loops are not static
