"""Make kernels propagate NaN and infinities as numpy and onnxruntime do.

TVM's ``max(x, 0)`` is the processor's maximum, which returns 0 for a NaN, so that a ReLU, a clip or
a pool hides it. A comparison with a selection returns the NaN, at no extra cost where one operand
is a constant: LLVM compiles it to the same instruction with the operands exchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from autosplit.extras import s_tir, tirx, tvm_ffi
from autosplit.lowering.vector_math import Once, sharing

_LARGEST = {"float16": 65504.0, "float32": 3.4028234663852886e38, "float64": 1.7976931348623157e308}


def keep_special_values(function: Any) -> Any:
    """Rewrite maxima, minima and comparisons of floats in a PrimFunc so that they keep NaN.

    Reductions start at an infinity instead of the largest finite number. Apply this after
    scheduling: the schedule primitives recognise a reduction by TVM's own ``max`` and ``min``.
    """
    return tvm_ffi.structural_map(
        function,
        (
            (tirx.Max, lambda node: _kept(node, lambda a, b: a > b)),
            (tirx.Min, lambda node: _kept(node, lambda a, b: a < b)),
            ((tirx.EQ, tirx.LE, tirx.GE), lambda node: _compared(node, tirx.Not)),
            (tirx.NE, lambda node: _compared(node, lambda is_nan: is_nan)),
            (s_tir.SBlock, _with_infinite_start),
        ),
    )


def _kept(node: Any, wins: Callable[[Any, Any], Any]) -> Any:
    if not str(node.ty.dtype).startswith("float"):
        return node
    a, b = (node.b, node.a) if _is_number(node.a) else (node.a, node.b)

    def chosen(once: Once) -> Any:
        x = once(a)
        if _is_number(b):
            # A comparison with NaN is false, so a NaN in ``x`` is returned.
            return tirx.Select(wins(b, x), b, x)
        y = once(b)
        return tirx.Select(tirx.Or(wins(x, y), tirx.isnan(x)), x, y)

    return sharing(chosen)


def _compared(node: Any, result: Callable[[Any], Any]) -> Any:
    """Rewrite a comparison of a float with itself as a NaN test; TVM folds it to a constant."""
    is_float = str(node.a.ty.dtype).startswith("float")
    if is_float and tvm_ffi.structural_equal(node.a, node.b):
        return result(tirx.isnan(node.a))
    return node


def _is_number(value: Any) -> bool:
    if isinstance(value, tirx.Broadcast):
        value = value.value
    return isinstance(value, tirx.FloatImm) and not math.isnan(value.value)


def _with_infinite_start(block: Any) -> Any:
    """Start a block's reduction at an infinity instead of the largest finite number.

    The index of a maximum starts at 0: TVM's -1 would stay where no element exceeds the start.
    """
    has_index = "_red_temp" in block.name_hint

    def corrected(store: Any) -> Any:
        value = store.value
        if not isinstance(value, tirx.FloatImm | tirx.IntImm):
            return store
        if abs(value.value) == _LARGEST.get(str(value.ty.dtype)):
            start = math.copysign(math.inf, value.value)
        elif has_index and value.value == -1:
            start = 0
        else:
            return store
        return tirx.BufferStore(store.buffer, tirx.const(start, value.ty.dtype), store.indices)

    # ``decompose_reduction`` gives the start of a reduction a block of this name.
    is_start = block.init is not None or block.name_hint.endswith("_init")
    return tvm_ffi.structural_map(block, (tirx.BufferStore, corrected)) if is_start else block
