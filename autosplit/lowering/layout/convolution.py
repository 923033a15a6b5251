"""Convolutions with channels last whose weights are packed in the order a kernel reads them.

Packed weights are [blocks of output channels, KH, KW, input channels, channels of a block]: the
innermost loop of a kernel reads them from front to back. Where the channels of a group are no
multiple of the vector, zeros are appended and the result is cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from autosplit.lowering.fuse.tensors import is_constant
from autosplit.lowering.layout.tiles import Registers, padded_channels, padded_width, tile_of

PACKED = "conv2d_packed"
DEPTHWISE = "conv2d_depthwise"


@dataclass(frozen=True)
class _Shape:
    """The sizes of a convolution; ``padded`` are the output channels of a group with zeros."""

    batch: int
    height: int
    width: int
    channels: int
    out_height: int
    out_width: int
    out_channels: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int, int, int]
    groups: int
    is_image: bool

    @property
    def group_inputs(self) -> int:
        return self.channels // self.groups

    @property
    def group_outputs(self) -> int:
        return self.out_channels // self.groups

    @property
    def is_depthwise(self) -> bool:
        return self.group_inputs == 1 and self.group_outputs == 1 and not self.is_image


def can_pack(call: Any) -> bool:
    """Whether a conv2d of the source is one whose weights can be packed now."""
    data, weight = call.args
    attrs = call.attrs
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout))
    is_plain = layouts[:2] == ("NCHW", "OIHW") and layouts[2] in ("", "NCHW")
    dtypes = {str(data.ty.dtype), str(weight.ty.dtype), str(call.ty.dtype)}
    return is_plain and is_constant(weight) and dtypes == {"float32"}


def legalize_conv2d(registers: Registers) -> Any:
    """The function that LegalizeOps calls for conv2d."""
    from tvm import relax

    # A weight that several convolutions read stays one constant.
    packed_weights: dict[Any, Any] = {}

    def legalize(builder: Any, call: Any) -> Any:
        if str(call.attrs.out_layout) != "NHWC" or not is_constant(call.args[1]):
            return relax.transform.legalize_ops.nn._nn_conv2d(builder, call)
        shape = _shape_of(call)
        weight = call.args[1].value.numpy()
        if shape.is_depthwise:
            packed = np.ascontiguousarray(weight[:, 0].transpose(1, 2, 0))
            return builder.call_te(
                lambda x, w: _depthwise(shape, _padded(shape, x), w),
                call.args[0],
                relax.const(packed),
                primfunc_name_hint="conv2d",
            )
        padded = padded_channels(shape.group_outputs, registers)
        tile = tile_of(shape.out_height, shape.out_width, padded, registers)
        key = (call.args[1], shape.groups, padded, tile.channels)
        if key not in packed_weights:
            packed_weights[key] = relax.const(_packed(shape, weight, padded, tile.channels))
        width = padded_width(shape.out_width, tile)

        def compute(x: Any, w: Any) -> Any:
            y = _convolution(shape, _padded(shape, x), w, padded, width)
            is_whole = padded == shape.group_outputs and width == shape.out_width
            return y if is_whole else _cut(shape, y, padded)

        return builder.call_te(
            compute, call.args[0], packed_weights[key], primfunc_name_hint="conv2d"
        )

    return legalize


def _shape_of(call: Any) -> _Shape:
    data, weight = call.args
    attrs = call.attrs
    is_image = str(attrs.data_layout) == "NCHW"
    sizes = [int(s) for s in data.ty.shape]
    batch, height, width, channels = (sizes[0], sizes[2], sizes[3], sizes[1]) if is_image else sizes
    _, out_height, out_width, out_channels = (int(s) for s in call.ty.shape)
    return _Shape(
        batch,
        height,
        width,
        channels,
        out_height,
        out_width,
        out_channels,
        (int(weight.ty.shape[2]), int(weight.ty.shape[3])),
        (int(attrs.strides[0]), int(attrs.strides[1])),
        (int(attrs.dilation[0]), int(attrs.dilation[1])),
        _four_sides([int(p) for p in attrs.padding]),
        int(attrs.groups),
        is_image,
    )


def _four_sides(padding: list[int]) -> tuple[int, int, int, int]:
    """Top, left, bottom and right of a padding given by one, two or four numbers."""
    if len(padding) == 1:
        padding = padding * 4
    top, left, *others = padding
    bottom, right = others or (top, left)
    return top, left, bottom, right


def _packed(shape: _Shape, weight: Any, padded: int, block: int) -> Any:
    groups, outputs, inputs = shape.groups, shape.group_outputs, shape.group_inputs
    grouped = weight.reshape(groups, outputs, inputs, *shape.kernel)
    zeros = np.zeros((groups, padded - outputs, inputs, *shape.kernel), weight.dtype)
    flat = np.concatenate([grouped, zeros], axis=1)
    blocks = flat.reshape(groups * padded // block, block, inputs, *shape.kernel)
    return np.ascontiguousarray(blocks.transpose(0, 3, 4, 2, 1))


def _padded(shape: _Shape, x: Any) -> Any:
    """The input with zeros around each image."""
    from tvm import te, tirx

    top, left, bottom, right = shape.padding
    if not any(shape.padding):
        return x

    def inside(h: Any, w: Any) -> Any:
        return tirx.all(h >= top, h < top + shape.height, w >= left, w < left + shape.width)

    zero = tirx.const(0.0, "float32")
    height, width = shape.height + top + bottom, shape.width + left + right
    if shape.is_image:
        return te.compute(
            (shape.batch, shape.channels, height, width),
            lambda n, c, h, w: tirx.if_then_else(inside(h, w), x[n, c, h - top, w - left], zero),
            name="pad",
        )
    return te.compute(
        (shape.batch, height, width, shape.channels),
        lambda n, h, w, c: tirx.if_then_else(inside(h, w), x[n, h - top, w - left, c], zero),
        name="pad",
    )


def _convolution(shape: _Shape, x: Any, weight: Any, padded: int, width: int) -> Any:
    from tvm import te, tirx

    block = int(weight.shape[4])
    rh = te.reduce_axis((0, shape.kernel[0]), "rh")
    rw = te.reduce_axis((0, shape.kernel[1]), "rw")
    rc = te.reduce_axis((0, shape.group_inputs), "rc")

    def product(n: Any, h: Any, w: Any, o: Any) -> Any:
        if width != shape.out_width:
            # Rows too many repeat the last one, for there is no input behind it.
            w = tirx.min(w, shape.out_width - 1)
        row = h * shape.strides[0] + rh * shape.dilation[0]
        column = w * shape.strides[1] + rw * shape.dilation[1]
        channel = o // padded * shape.group_inputs + rc if shape.groups > 1 else rc
        pixel = x[n, channel, row, column] if shape.is_image else x[n, row, column, channel]
        return te.sum(pixel * weight[o // block, rh, rw, rc, o % block], axis=[rh, rw, rc])

    return te.compute(
        (shape.batch, shape.out_height, width, shape.groups * padded),
        product,
        name=PACKED,
        attrs={
            "padded_channels": padded,
            "group_channels": shape.group_outputs,
            "row_width": shape.out_width,
        },
    )


def _depthwise(shape: _Shape, x: Any, weight: Any) -> Any:
    from tvm import te

    rh = te.reduce_axis((0, shape.kernel[0]), "rh")
    rw = te.reduce_axis((0, shape.kernel[1]), "rw")

    def product(n: Any, h: Any, w: Any, o: Any) -> Any:
        row = h * shape.strides[0] + rh * shape.dilation[0]
        column = w * shape.strides[1] + rw * shape.dilation[1]
        return te.sum(x[n, row, column, o] * weight[rh, rw, o], axis=[rh, rw])

    return te.compute(
        (shape.batch, shape.out_height, shape.out_width, shape.out_channels),
        product,
        name=DEPTHWISE,
    )


def _cut(shape: _Shape, y: Any, padded: int) -> Any:
    """The result without appended channels and rows too many."""
    from tvm import te

    outputs = shape.group_outputs

    def channel(o: Any) -> Any:
        return o // outputs * padded + o % outputs if shape.groups > 1 else o

    return te.compute(
        (shape.batch, shape.out_height, shape.out_width, shape.out_channels),
        lambda n, h, w, o: y[n, h, w, channel(o)],
        name="cut",
    )
