"""The sizes of a convolution, and where it reads its input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autosplit.extras import topi
from autosplit.frontend.relax.expressions import shape_of


@dataclass(frozen=True)
class ConvolutionShape:
    """The sizes of a convolution over tensors of a rank, 3 for rows and 4 for images.

    The kernel, strides, dilation and sizes are those of height and width, the padding that at the
    top, left, bottom and right. With ``is_image`` the input has the layout of the source.
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
        """A position, or the sizes, of a tensor with channels last."""
        return (n, h, w, c) if self.rank == 4 else (n, w, c)

    def read(self, n: Any, h: Any, w: Any, c: Any) -> tuple[Any, ...]:
        """A position, or the sizes, of the input."""
        if not self.is_image:
            return self.last(n, h, w, c)
        return (n, c, h, w) if self.rank == 4 else (n, c, w)


def convolution_shape(call: Any) -> ConvolutionShape:
    """The sizes of a convolution whose output has channels last."""
    data, weight = call.args
    attrs = call.attrs
    is_image = str(attrs.data_layout)[1] == "C"
    batch, *sizes = shape_of(data)
    channels = sizes.pop(0 if is_image else -1)
    _, *out_sizes, out_channels = shape_of(call)
    height, width = _two(sizes)
    out_height, out_width = _two(out_sizes)
    # Relax writes the padding of every side, whatever it was given.
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
    """Those of height and width; a row has height 1."""
    height, width = map(int, sizes if len(sizes) == 2 else (1, *sizes))
    return height, width


def with_zeros(shape: ConvolutionShape, x: Any) -> Any:
    """The input with zeros around each image."""
    if not any(shape.padding):
        return x
    top, left, bottom, right = shape.padding
    before, after = shape.read(0, top, left, 0), shape.read(0, bottom, right, 0)
    return topi.nn.pad(x, before, after, name="pad")


def coordinates(position: tuple[Any, ...]) -> tuple[Any, Any, Any, Any]:
    """Item, row, column and channel of a position with channels last; a row of pixels is row 0."""
    n, *pixel, channel = position
    h, w = pixel if len(pixel) == 2 else (0, *pixel)
    return n, h, w, channel
