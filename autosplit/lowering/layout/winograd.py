"""Convolutions of 3 x 3 pixels with four multiplications a pixel in place of nine.

Winograd's minimal filtering F(2 x 2, 3 x 3): a tile of 4 x 4 input pixels and the weights are
transformed by additions, multiplied number by number, and the sums over the input channels
transformed back to 2 x 2 output pixels (Lavin and Gray, "Fast Algorithms for Convolutional Neural
Networks", 2016, section 4.1). The products of each of the 16 positions are a matrix product of
tiles by channels. The transforms of larger tiles lose digits, so there are none. An input that is
no finite number makes all pixels of its tiles NaN, not only those that read it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from autosplit.extras import te, tirx
from autosplit.lowering.layout.shape import ConvolutionShape, with_zeros
from autosplit.lowering.layout.tiles import Registers, Tile, padded_width, tile_of

INPUT, PRODUCT, OUTPUT = "winograd_input", "winograd_product", "winograd"
POSITIONS = 16  # of a tile
# The matrices of the transforms, by the letters of Lavin and Gray.
_B_T = ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1))
_G = ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1))
_A_T = ((1, 1, 1, 0), (0, 1, -1, -1))
# The transforms pay off up to this share of a direct convolution's multiplications. Small images
# that tiles of 2 x 2 pixels do not divide have a larger one.
_LARGEST_SHARE = 0.55
# Tiles computed at once: enough to use a block of weights several times while it is in the cache,
# and few enough for their transforms to stay there.
_TILES = 28


def fits(shape: ConvolutionShape, dtype: Any, registers: Registers) -> bool:
    """Whether a convolution of images is faster this way than by tiles of its output."""
    is_plain = shape.rank == 4 and shape.groups == 1 and not shape.is_image and dtype == np.float32
    is_plain = is_plain and (*shape.kernel, *shape.strides, *shape.dilation) == (3, 3, 1, 1, 1, 1)
    is_whole = shape.channels % registers.lanes == shape.out_channels % registers.lanes == 0
    rows, columns = _tiles(shape)
    multiplications = POSITIONS * rows * columns
    share = multiplications / (9 * shape.out_height * shape.out_width)
    return is_plain and is_whole and share <= _LARGEST_SHARE


def rows_at_once(rows: int, columns: int) -> int:
    """The rows of tiles that are computed together: the fewest with ``_TILES`` tiles or more."""
    return next(
        r for r in range(1, rows + 1) if rows % r == 0 and (r * columns >= _TILES or r == rows)
    )


def product_tile(shape: ConvolutionShape, registers: Registers) -> Tile:
    """The part of the products that a kernel computes in registers."""
    rows, columns = _tiles(shape)
    return tile_of(rows_at_once(rows, columns), columns, shape.out_channels, registers)


def transformed_weight(weight: Any, block: int) -> Any:
    """Weights [O, I, 3, 3] as [16, blocks of O, I, channels of a block]."""
    outputs, inputs = weight.shape[:2]
    g = np.array(_G)
    # Rounded once, from sums in 64 bits.
    positions = np.einsum("ia,ocab,jb->ijoc", g, weight.astype(np.float64), g)
    blocks = positions.reshape(POSITIONS, outputs // block, block, inputs)
    return np.ascontiguousarray(blocks.transpose(0, 1, 3, 2).astype(np.float32))


def winograd(shape: ConvolutionShape, x: Any, weight: Any, tile: Tile) -> Any:
    """The convolution by transformed weights."""
    rows, columns = _tiles(shape)
    top, left, _, _ = shape.padding
    below, right = 2 * rows + 2 - top - shape.height, 2 * columns + 2 - left - shape.width
    pixels = with_zeros(replace(shape, padding=(top, left, below, right)), x)
    block = tile.channels

    def to_position(e: Any, n: Any, y: Any, x: Any, c: Any) -> Any:
        return _transform(_B_T, e, lambda a, b: pixels[n, 2 * y + a, 2 * x + b, c])

    sizes = (POSITIONS, shape.batch, rows, columns, shape.channels)
    positions = te.compute(sizes, to_position, name=INPUT)
    k = te.reduce_axis((0, shape.channels), "k")

    def product(e: Any, n: Any, y: Any, x: Any, o: Any) -> Any:
        # The padding of the last tile repeats the last column.
        column = tirx.min(x, columns - 1) if columns % tile.width else x
        factor = weight[e, o // block, k, o % block]
        return te.sum(positions[e, n, y, column, k] * factor, axis=[k])

    width = padded_width(columns, tile)
    sums = te.compute((*sizes[:3], width, shape.out_channels), product, name=PRODUCT)

    def from_positions(n: Any, h: Any, w: Any, o: Any) -> Any:
        def read(a: int, b: int) -> Any:
            return sums[4 * a + b, n, h // 2, w // 2, o]

        return _transform(_A_T, h % 2 * 2 + w % 2, read)

    out_sizes = (shape.batch, shape.out_height, shape.out_width, shape.out_channels)
    return te.compute(out_sizes, from_positions, name=OUTPUT)


def _tiles(shape: ConvolutionShape) -> tuple[int, int]:
    """The rows of tiles, and the tiles of a row."""
    return -(-shape.out_height // 2), -(-shape.out_width // 2)


def _transform(matrix: Any, position: Any, read: Any) -> Any:
    """Number ``position`` of M d M^T for a matrix of 1, 0 and -1, where ``read`` gives d.

    The kernel unrolls the positions, which leaves the one sum of each.
    """

    def entry(i: int, j: int) -> Any:
        total: Any = None
        for a, b in np.argwhere(np.outer(matrix[i], matrix[j])).tolist():
            term, is_positive = read(a, b), matrix[i][a] * matrix[j][b] > 0
            if total is None:
                total = term if is_positive else -term
            else:
                total = total + term if is_positive else total - term
        return total

    count = len(matrix)
    result = entry(count - 1, count - 1)
    for number in reversed(range(count * count - 1)):
        result = tirx.Select(position == number, entry(*divmod(number, count)), result)
    return result
