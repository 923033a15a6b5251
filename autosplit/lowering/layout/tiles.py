"""The part of an output that a kernel computes in registers.

Every multiplication of a convolution or a matrix product reads a number of the input and a vector
of weights. A tile of ``rows`` output pixels by ``vectors`` of channels reads ``rows`` numbers and
``vectors`` vectors for ``rows * vectors`` multiplications, so the larger and the squarer it is, the
more arithmetic a load feeds (Goto and van de Geijn, "Anatomy of High-Performance Matrix
Multiplication", 2008). The tile must fit into the registers together with its vectors of weights
and one number of the input.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from autosplit.extras import tvm


@dataclass(frozen=True)
class Registers:
    """The vector registers of a target: how many, and how many 32-bit floats each holds."""

    count: int
    lanes: int


@dataclass(frozen=True)
class Tile:
    """A block of the output: ``height`` x ``width`` pixels, ``vectors`` of ``lanes`` channels."""

    height: int
    width: int
    vectors: int
    lanes: int

    @property
    def channels(self) -> int:
        """The output channels of the tile."""
        return self.vectors * self.lanes


def registers_of(target: Any) -> Registers:
    """The registers of a tvm Target: AVX-512, AVX2, else 128 bits as SSE and NEON have them."""
    if target.kind.name == "llvm":
        if tvm.target.codegen.target_has_features(["avx512f"], target):
            return Registers(32, 16)
        if tvm.target.codegen.target_has_features(["avx2"], target):
            return Registers(16, 8)
    return Registers(16, 4)


def padded_channels(channels: int, registers: Registers) -> int:
    """The channels of one group with zeros appended, so that they fill whole vectors.

    Zeros cost time in proportion, so few are appended: up to one vector, half or a quarter of a
    vector is used where that is enough; above, as few whole vectors as possible.
    """
    lanes = registers.lanes
    if channels <= lanes:
        while lanes > 4 and channels <= lanes // 2:
            lanes //= 2
        return lanes
    vectors = -(-channels // lanes)
    # An even number of vectors makes a squarer tile; one more costs little where there are many.
    if vectors >= 8:
        vectors += vectors % 2
    return vectors * lanes


def tile_of(height: int, width: int, channels: int, registers: Registers) -> Tile:
    """The tile that takes the least time for an output of a given size.

    ``channels`` is a number that ``padded_channels`` returns. The tile divides it and the height,
    but perhaps not the width: then the last tile also computes pixels that are discarded.
    """
    lanes = min(registers.lanes, channels)
    best = Tile(1, 1, 1, lanes)
    for vectors in range(1, 7):
        if channels % (lanes * vectors):
            continue
        for tile_height in range(1, min(height, 8) + 1):
            if height % tile_height:
                continue
            for tile_width in range(1, min(width, 28) + 1):
                tile = Tile(tile_height, tile_width, vectors, lanes)
                if _fits(tile, registers) and _cost(tile, width) < _cost(best, width):
                    best = tile
    return best


def padded_width(width: int, tile: Tile) -> int:
    """The width rounded up to whole tiles."""
    return -(-width // tile.width) * tile.width


def _fits(tile: Tile, registers: Registers) -> bool:
    rows = tile.height * tile.width
    return rows * tile.vectors + tile.vectors + 1 <= registers.count


def _cost(tile: Tile, width: int) -> tuple[float, int]:
    """Relative time of one multiplication with its loads; the height breaks ties.

    Of two tiles with the same time the lower one is better: its pixels are neighbours in memory.
    """
    rows = tile.height * tile.width
    loads = (rows + tile.vectors) / (rows * tile.vectors)
    return padded_width(width, tile) / width * (1 + loads), tile.height
