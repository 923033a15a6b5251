"""The order of axes in memory.

With channels last, a tensor (N, C..., H, W) of rank 4 or more is stored as (N, H, W, C...), and
(N, C, W) as (N, W, C). The name of a variable with this layout ends in ``SUFFIX``, which passes
preserve.
"""

from __future__ import annotations

from math import prod
from typing import Any

from autosplit.extras import te, tirx

SUFFIX = "channels_last"
SWAP = "swap_channels"


def pixel_axes(rank: int) -> list[int]:
    """The axes of the pixels of a source tensor: height and width, or width alone."""
    return list(range(max(2, rank - 2), rank))


def to_last(rank: int) -> list[int]:
    """The axes of a source tensor in the order of channels last."""
    pixels = pixel_axes(rank)
    return [0, *pixels, *range(1, rank - len(pixels))]


def to_source(rank: int) -> list[int]:
    """The inverse of ``to_last``."""
    return [to_last(rank).index(axis) for axis in range(rank)]


def source_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in the source of a tensor that has ``shape`` with channels last."""
    return tuple(shape[axis] for axis in to_source(len(shape)))


def swap_name(dtype: str) -> str:
    """The name of the kernel that exchanges channels and pixels of tensors of a type."""
    return f"swap_{dtype}"


def swap_kernel(dtype: str) -> Any:
    """A PrimFunc that copies (n, a, b) to (n, b, a), for any sizes.

    Stages call it for a tensor that crosses a cut: the tensor has the layout of the source there,
    whatever the runtimes on both sides.
    """
    n, a, b = (tirx.Var(name, "int64") for name in "nab")
    x = te.placeholder((n, a, b), dtype, name="x")
    y = te.compute((n, b, a), lambda i, j, k: x[i, k, j], name=SWAP)
    return te.create_prim_func([x, y])


def as_swap(shape: tuple[int, ...], channels_last: bool) -> tuple[int, int, int]:
    """The sizes (n, a, b) of a swap to channels last, or back, of a tensor of the source."""
    axes = pixel_axes(len(shape))
    pixels = prod(shape[axis] for axis in axes)
    channels = prod(shape[1 : -len(axes)])
    return (shape[0], channels, pixels) if channels_last else (shape[0], pixels, channels)
