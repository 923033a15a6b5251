"""Convolutions of quantised tensors in integers, where the target multiplies bytes.

A quantised net says ``conv2d(dequantize(x), dequantize(weight))``. With x = s (q - z) and weights
t[o] p that is s t[o] (conv2d(q, p) - z sum(p)): a product of bytes, summed up exactly in 32 bits.
The instruction multiplies unsigned by signed bytes, so signed ones are moved up by 128.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autosplit.extras import relax
from autosplit.frontend.relax.expressions import is_constant
from autosplit.frontend.relax.main_function import bindings, rebind, with_bindings
from autosplit.lowering.layout.tiles import BYTES, Registers

_SIGNED_TO_UNSIGNED = 128


def convolve_bytes(registers: Registers) -> Callable[[Any], Any]:
    """The pass that computes convolutions of quantised tensors in integers."""

    def convert(module: Any) -> Any:
        values = {b.var: b.value for b in bindings(module["main"])}
        quantised = {v: _operands(call, values, registers) for v, call in values.items()}
        if not any(quantised.values()):
            return module

        def replace(mutator: Any, binding: Any) -> bool:
            operands = quantised[binding.var]
            if operands:
                result = _product(mutator, binding.value, *operands)
                rebind(mutator, binding.var, result, binding.var.name)
            return bool(operands)

        return with_bindings(module, replace)

    return convert


def _operands(call: Any, values: dict[Any, Any], registers: Registers) -> tuple[Any, Any] | None:
    """The dequantisations that a convolution reads, None where integers do not fit it."""
    if _name(call) != "relax.nn.conv2d" or str(call.attrs.data_layout) != "NCHW":
        return None
    data: Any = values.get(call.args[0])
    weight: Any = values.get(call.args[1])
    if _name(data) != "relax.dequantize" or _name(weight) != "relax.dequantize":
        return None
    if not all(is_constant(value) for value in (*data.args[1:], *weight.args)):
        return None
    q, p = data.args[0], weight.args[0].value.numpy()
    scale, zero = (_array(value) for value in data.args[1:])
    is_plain = scale.size == zero.size == 1 and not _array(weight.args[2]).any()
    is_plain = is_plain and str(q.ty.dtype) in ("int8", "uint8") and p.dtype == np.int8
    # Zeros around an image are the number 0 only where q = 0 is.
    is_exact = _unsigned_zero(q, zero) == 0 or not any(int(side) for side in call.attrs.padding)
    is_whole = p.shape[0] % registers.lanes == 0 and p.shape[1] % BYTES == 0
    fits = is_plain and is_exact and is_whole and int(call.attrs.groups) == 1
    return (data, weight) if fits else None


def _product(mutator: Any, call: Any, data: Any, weight: Any) -> Any:
    """The convolution of dequantised tensors by one of their integers."""
    emit, attrs = mutator.builder_.emit, call.attrs
    q = mutator.visit_expr(data.args[0])
    zero = _unsigned_zero(q, _array(data.args[2]))
    if str(q.ty.dtype) == "int8":
        wide = emit(relax.op.astype(q, "int16"))
        unsigned = emit(relax.op.add(wide, relax.const(_SIGNED_TO_UNSIGNED, "int16")))
        q = emit(relax.op.astype(unsigned, "uint8"))
    p = weight.args[0].value.numpy()
    total = emit(
        relax.op.nn.conv2d(
            q,
            weight.args[0],
            list(attrs.strides),
            list(attrs.padding),
            list(attrs.dilation),
            out_dtype="int32",
        )
    )
    if zero:
        offset = zero * p.sum((1, 2, 3), dtype=np.int32)
        total = emit(relax.op.subtract(total, relax.const(offset.reshape(1, -1, 1, 1), "int32")))
    scale = _array(data.args[1]).reshape(()) * np.broadcast_to(_array(weight.args[1]), p.shape[0])
    factor = relax.const(scale.reshape(1, -1, 1, 1).astype(np.float32))
    return relax.op.multiply(emit(relax.op.astype(total, "float32")), factor)


def _unsigned_zero(q: Any, zero: Any) -> int:
    return int(zero.item()) + (_SIGNED_TO_UNSIGNED if str(q.ty.dtype) == "int8" else 0)


def _array(constant: Any) -> Any:
    return constant.value.numpy()


def _name(value: Any) -> str:
    return str(getattr(getattr(value, "op", None), "name", ""))
