"""Matrix products whose right-hand side is stored in the order in which a kernel reads it.

A constant right-hand side is packed here to [blocks of columns, K, columns of a block], with zeros
appended if the columns do not fill whole vectors. A right-hand side that is computed is read as it
is, or packed by the kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autosplit.extras import relax, te, tirx, topi
from autosplit.frontend.relax.expressions import is_constant, shape_of
from autosplit.lowering.layout.tiles import Registers, Tile, padded_channels, padded_width, tile_of

PACKED = "matmul_packed"


def legalize_matmul(registers: Registers) -> Any:
    """The function that LegalizeOps calls for matmul."""
    # A weight that several products read stays one constant.
    packed_weights: dict[Any, Any] = {}

    def legalize(builder: Any, call: Any) -> Any:
        if not _fits(call, registers):
            return relax.transform.legalize_ops.linear_algebra._matmul(builder, call)
        left, right = call.args
        sizes = shape_of(call)
        rows, columns = sizes[-2:]
        padded = padded_channels(columns, registers)
        tile = tile_of(1, rows, padded, registers)
        is_packed = is_constant(right) and len(right.ty.shape) == 2
        if is_packed:
            key = (right, padded, tile.channels)
            if key not in packed_weights:
                packed = _packed(np.from_dlpack(right.value), padded, tile.channels)
                packed_weights[key] = relax.const(packed)
            right = packed_weights[key]

        def compute(x: Any, w: Any) -> Any:
            y = _product(x, w, sizes, padded, tile, is_packed)
            is_whole = padded == columns and padded_width(rows, tile) == rows
            # The result is cropped to the columns and rows of the product.
            return y if is_whole else te.compute(sizes, lambda *at: y[at], name="cut")

        return builder.call_te(compute, left, right, primfunc_name_hint="matmul")

    return legalize


def _fits(call: Any, registers: Registers) -> bool:
    """Whether a call is a product of matrices of 32-bit floats that these kernels make faster.

    A product with one row reads every number of the matrix only once, so packing the matrix gains
    nothing if its rows are whole vectors anyway.
    """
    left, right = call.args
    dtypes = {str(left.ty.dtype), str(right.ty.dtype), str(call.ty.dtype)}
    sizes = shape_of(left)
    rank = len(right.ty.shape)
    if dtypes != {"float32"} or min(len(sizes), rank) < 2:
        return False
    is_uneven = is_constant(right) and rank == 2 and int(right.ty.shape[1]) % registers.lanes > 0
    return sizes[-2] > 1 or is_uneven


def _packed(weight: Any, padded: int, block: int) -> Any:
    depth, columns = weight.shape
    if padded > columns:
        weight = np.pad(weight, [(0, 0), (0, padded - columns)])
    return np.ascontiguousarray(weight.reshape(depth, padded // block, block).transpose(1, 0, 2))


def _product(
    left: Any, right: Any, sizes: tuple[int, ...], padded: int, tile: Tile, is_packed: bool
) -> Any:
    """The product, with its last two dimensions rounded up to whole tiles."""
    *batch, rows, columns = sizes
    depth = int(left.shape[len(left.shape) - 1])
    k = te.reduce_axis((0, depth), "k")
    if not is_packed and padded != columns:
        none = [0] * len(right.shape)
        right = topi.nn.pad(right, none, [*none[1:], padded - columns], name="pad")
    attributes = {"padded_channels": padded, "group_channels": columns, "row_width": rows}

    def product(*position: Any) -> Any:
        *outer, m, n = position
        if padded_width(rows, tile) != rows:
            # Rows beyond the last one repeat it, since there is no input for them.
            m = tirx.min(m, rows - 1)
        x = left[(*_batch_position(left, outer), m, k)]
        if is_packed:
            return te.sum(x * right[n // tile.channels, k, n % tile.channels], axis=[k])
        return te.sum(x * right[(*_batch_position(right, outer), k, n)], axis=[k])

    return te.compute(
        (*batch, padded_width(rows, tile), padded),
        product,
        name=PACKED,
        attrs=attributes | ({"shared_weights": 1} if is_packed else {}),
    )


def _batch_position(operand: Any, outer: list[Any]) -> list[Any]:
    """The batch index at which an operand is read; axes of size 1 are broadcast."""
    sizes = list(map(int, operand.shape))[:-2]
    position = outer[len(outer) - len(sizes) :]
    return [0 if size == 1 else index for size, index in zip(sizes, position, strict=True)]
