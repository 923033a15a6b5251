"""Convolutions with channels last whose weights are packed in the order a kernel reads them.

Packed weights are [blocks of output channels, KH, KW, input channels, channels of a block]: the
innermost loop of a kernel reads them from front to back. If the channels of a group do not fill
whole vectors, zeros are appended and the result is cropped. A 1-D convolution is computed as a 2-D
one over images of height 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from autosplit.extras import relax, te, tirx, topi
from autosplit.frontend.relax.expressions import is_constant, operator, shape_of
from autosplit.lowering.layout.tiles import Registers, padded_channels, padded_width, tile_of

PACKED = "conv2d_packed"
DEPTHWISE = "conv2d_depthwise"
# The layouts of the data and the weight in the source, by op.
SOURCE_LAYOUTS = {
    "nn.conv1d": ("NCW", "OIW"),
    "nn.conv2d": ("NCHW", "OIHW"),
    "nn.conv1d_transpose": ("NCW", "IOW"),
    "nn.conv2d_transpose": ("NCHW", "IOHW"),
}


def can_pack(call: Any) -> bool:
    """Whether a call of the source is a convolution whose weights can be packed now."""
    layouts = SOURCE_LAYOUTS.get(operator(call))
    if layouts is None:
        return False
    weight, attrs = call.args[1], call.attrs
    is_plain = (str(attrs.data_layout), str(attrs.kernel_layout)) == layouts
    is_plain = is_plain and str(attrs.out_layout) in ("", layouts[0])
    if layouts[1].startswith("IO"):
        # Wider padding would crop the input of the equivalent convolution.
        kernel = shape_of(weight)[2:]
        is_plain = is_plain and all(int(step) == 1 for step in attrs.dilation)
        is_plain = is_plain and max(map(int, attrs.padding)) < min(kernel)
    return is_plain and is_constant(weight) and _dtypes(call) == {"float32"}


def _dtypes(call: Any) -> set[str]:
    return {str(value.ty.dtype) for value in (*call.args, call)}


def legalize_convolutions(registers: Registers) -> dict[str, Any]:
    """The functions that LegalizeOps calls for convolutions, by the name of the op."""
    from tvm.relax.transform.legalize_ops import nn

    # A weight that several convolutions read stays one constant.
    packed_weights: dict[Any, Any] = {}

    def legalize(builder: Any, call: Any) -> Any:
        data, weight = call.args
        name = call.op.name.removeprefix("relax.nn.")
        is_last = str(call.attrs.out_layout) in ("NHWC", "NWC") and is_constant(weight)
        # A Relax module may have convolutions with channels last, or weights in another layout.
        is_ours = str(call.attrs.kernel_layout) == SOURCE_LAYOUTS[f"nn.{name}"][1]
        if not (is_last and is_ours and _dtypes(call) == {"float32"}):
            return getattr(nn, f"_nn_{name}")(builder, call)
        kernel = _kernel(call, name, registers)
        key = (weight, *kernel.key)
        if key not in packed_weights:
            packed_weights[key] = relax.const(kernel.pack())
        return builder.call_te(kernel.compute, data, packed_weights[key], primfunc_name_hint=name)

    return {f"relax.{name}": legalize for name in SOURCE_LAYOUTS}


@dataclass(frozen=True)
class ConvolutionShape:
    """The sizes of a convolution over tensors of ``rank`` 3 (rows of pixels) or 4 (images).

    ``kernel``, ``strides`` and ``dilation`` are for height and width, ``padding`` is for the top,
    left, bottom and right. With ``is_image`` the input has the layout of the source.
    """

    rank: int
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
        """The input channels of a group."""
        return self.channels // self.groups

    @property
    def group_outputs(self) -> int:
        """The output channels of a group."""
        return self.out_channels // self.groups

    @property
    def is_depthwise(self) -> bool:
        """Whether each channel is a group by itself."""
        return self.group_inputs == 1 and self.group_outputs == 1 and not self.is_image

    def last(self, n: Any, h: Any, w: Any, c: Any) -> tuple[Any, ...]:
        """An index, or the shape, of a tensor with channels last."""
        return (n, h, w, c) if self.rank == 4 else (n, w, c)

    def read(self, n: Any, h: Any, w: Any, c: Any) -> tuple[Any, ...]:
        """An index, or the shape, of the input."""
        if not self.is_image:
            return self.last(n, h, w, c)
        return (n, c, h, w) if self.rank == 4 else (n, c, w)


class _Kernel(NamedTuple):
    """How to pack weights and compute a convolution from them; ``key`` identifies the packing."""

    key: tuple[Any, ...]
    pack: Callable[[], Any]
    compute: Callable[[Any, Any], Any]


def _kernel(call: Any, name: str, registers: Registers) -> _Kernel:
    result = shape = _shape_of_call(call)
    weight = call.args[1].value.numpy()
    if shape.rank == 3:
        weight = np.expand_dims(weight, 2)
    if name.endswith("transpose"):
        shape, weight = _as_convolution(shape, weight)
    elif shape.is_depthwise:
        return _Kernel(
            (DEPTHWISE,),
            lambda: np.ascontiguousarray(weight[:, 0].transpose(1, 2, 0)),
            lambda x, w: _depthwise(shape, _with_zeros(shape, x), w),
        )
    padded = padded_channels(shape.group_outputs, registers)
    tile = tile_of(shape.out_height, shape.out_width, padded, registers)
    width = padded_width(shape.out_width, tile)

    def pack() -> Any:
        return _packed(shape, weight, padded, tile.channels)

    def compute(x: Any, w: Any) -> Any:
        y = _convolution(shape, _with_zeros(shape, x), w, padded, width)
        is_whole = padded == shape.group_outputs and width == shape.out_width
        return y if is_whole and result is shape else _cut(result, shape, y, padded)

    return _Kernel((name, result.strides, shape.groups, padded, tile.channels), pack, compute)


def _as_convolution(shape: ConvolutionShape, weight: Any) -> tuple[ConvolutionShape, Any]:
    """The sizes and weights of a convolution that computes a transposed one.

    With stride s, the output pixels h with the same (h + padding) % s use the same weights, every
    s-th: they are the output of a convolution with stride 1. Its output channels hold all pixels
    of a stride with their channels: [groups, s, s, channels of a group].
    """
    (top, left, _, _), (sh, sw) = shape.padding, shape.strides
    taps = tuple(-(-k // s) for k, s in zip(shape.kernel, shape.strides, strict=True))
    first = (top // sh, left // sw)
    last = ((shape.out_height - 1 + top) // sh, (shape.out_width - 1 + left) // sw)
    before = [tap - 1 - start for tap, start in zip(taps, first, strict=True)]
    after = [max(0, last[0] - shape.height + 1), max(0, last[1] - shape.width + 1)]
    wide = np.zeros((*weight.shape[:2], taps[0] * sh, taps[1] * sw), weight.dtype)
    wide[:, :, : shape.kernel[0], : shape.kernel[1]] = weight
    outputs = shape.group_outputs
    by_phase = wide.reshape(shape.groups, -1, outputs, taps[0], sh, taps[1], sw)
    # The kernel is flipped, since output q reads input q - t for tap t.
    turned = by_phase[:, :, :, ::-1, :, ::-1].transpose(0, 4, 6, 2, 1, 3, 5)
    channels = shape.out_channels * sh * sw
    convolution = replace(
        shape,
        out_height=last[0] - first[0] + 1,
        out_width=last[1] - first[1] + 1,
        out_channels=channels,
        kernel=(taps[0], taps[1]),
        strides=(1, 1),
        padding=(before[0], before[1], after[0], after[1]),
    )
    return convolution, turned.reshape(channels, shape.group_inputs, *taps)


def _packed(shape: ConvolutionShape, weight: Any, padded: int, block: int) -> Any:
    groups, outputs, inputs = shape.groups, shape.group_outputs, shape.group_inputs
    grouped = weight.reshape(groups, outputs, inputs, *shape.kernel)
    zeros = np.zeros((groups, padded - outputs, inputs, *shape.kernel), weight.dtype)
    flat = np.concatenate([grouped, zeros], axis=1)
    blocks = flat.reshape(groups * padded // block, block, inputs, *shape.kernel)
    return np.ascontiguousarray(blocks.transpose(0, 3, 4, 2, 1))


def _convolution(shape: ConvolutionShape, x: Any, weight: Any, padded: int, width: int) -> Any:
    block = int(weight.shape[4])
    rh, rw = _window(shape)
    rc = te.reduce_axis((0, shape.group_inputs), "rc")
    axes = [axis for axis in (rh, rw, rc) if not isinstance(axis, int)]

    def product(*at: Any) -> Any:
        n, h, w, o = _coordinates(at)
        if width != shape.out_width:
            # Pixels beyond the row repeat its last one, since there is no input for them.
            w = tirx.min(w, shape.out_width - 1)
        channel = o // padded * shape.group_inputs + rc if shape.groups > 1 else rc
        row, column = _covered(shape, h, w, rh, rw)
        pixel = x[shape.read(n, row, column, channel)]
        return te.sum(pixel * weight[o // block, rh, rw, rc, o % block], axis=axes)

    return te.compute(
        shape.last(shape.batch, shape.out_height, width, shape.groups * padded),
        product,
        name=PACKED,
        attrs={
            "padded_channels": padded,
            "group_channels": shape.group_outputs,
            "row_width": shape.out_width,
        },
    )


def _window(shape: ConvolutionShape) -> tuple[Any, Any]:
    """The reduction axes over the rows and columns of a kernel; in rank 3 the row is always 0."""
    rh = te.reduce_axis((0, shape.kernel[0]), "rh") if shape.rank == 4 else 0
    return rh, te.reduce_axis((0, shape.kernel[1]), "rw")


def _covered(shape: ConvolutionShape, h: Any, w: Any, rh: Any, rw: Any) -> tuple[Any, Any]:
    """Row and column of the input that output (h, w) reads at (rh, rw) of its window."""
    (sh, sw), (dh, dw) = shape.strides, shape.dilation
    return h * sh + rh * dh, w * sw + rw * dw


def _depthwise(shape: ConvolutionShape, x: Any, weight: Any) -> Any:
    rh, rw = _window(shape)

    def product(*at: Any) -> Any:
        n, h, w, o = _coordinates(at)
        pixel = x[shape.last(n, *_covered(shape, h, w, rh, rw), o)]
        axes = [r for r in (rh, rw) if not isinstance(r, int)]
        return te.sum(pixel * weight[rh, rw, o], axis=axes)

    sizes = shape.last(shape.batch, shape.out_height, shape.out_width, shape.out_channels)
    return te.compute(sizes, product, name=DEPTHWISE)


def _cut(result: ConvolutionShape, shape: ConvolutionShape, y: Any, padded: int) -> Any:
    """Crop the appended channels and surplus pixels of the result ``y``.

    For a transposed convolution, the channels of ``y`` hold the pixels of a stride.
    """
    outputs = result.group_outputs
    is_transposed = result is not shape
    (top, left, _, _), (sh, sw) = result.padding, result.strides

    def pixel(*at: Any) -> Any:
        n, h, w, o = _coordinates(at)
        channel = o // outputs * padded + o % outputs if result.groups > 1 else o
        if is_transposed:
            channel += ((h + top) % sh * sw + (w + left) % sw) * outputs
            h, w = (h + top) // sh - top // sh, (w + left) // sw - left // sw
        return y[result.last(n, h, w, channel)]

    sizes = result.last(result.batch, result.out_height, result.out_width, result.out_channels)
    return te.compute(sizes, pixel, name="cut")


def _shape_of_call(call: Any) -> ConvolutionShape:
    """The sizes of a convolution whose output has channels last."""
    data, weight = call.args
    attrs = call.attrs
    is_image = str(attrs.data_layout)[1] == "C"
    batch, *sizes = shape_of(data)
    channels = sizes.pop(0 if is_image else -1)
    _, *out_sizes, out_channels = shape_of(call)
    height, width = _two(sizes)
    out_height, out_width = _two(out_sizes)
    # Relax stores the padding of every side, however it was given.
    *before, right = map(int, attrs.padding)
    top, left, bottom = before if len(before) == 3 else (0, *before, 0)
    return ConvolutionShape(
        len(data.ty.shape),
        batch,
        height,
        width,
        channels,
        out_height,
        out_width,
        out_channels,
        _two(shape_of(weight)[2:]),
        _two(attrs.strides),
        _two(attrs.dilation),
        (top, left, bottom, right),
        int(attrs.groups),
        is_image,
    )


def _two(sizes: Sequence[Any]) -> tuple[int, int]:
    """The values for height and width; a row of pixels has height 1."""
    height, width = map(int, sizes if len(sizes) == 2 else (1, *sizes))
    return height, width


def _with_zeros(shape: ConvolutionShape, x: Any) -> Any:
    """The input with zeros around each image."""
    if not any(shape.padding):
        return x
    top, left, bottom, right = shape.padding
    before, after = shape.read(0, top, left, 0), shape.read(0, bottom, right, 0)
    return topi.nn.pad(x, before, after, name="pad")


def _coordinates(position: tuple[Any, ...]) -> tuple[Any, Any, Any, Any]:
    """Item, row, column and channel of an index with channels last; a row of pixels is row 0."""
    n, *pixel, channel = position
    h, w = pixel if len(pixel) == 2 else (0, *pixel)
    return n, h, w, channel
