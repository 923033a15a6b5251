"""Convolutions by Winograd's filtering: rows of tiles pass all steps while in the cache."""

from __future__ import annotations

from typing import Any

from autosplit.hardware.codegen.rules.blocks import (
    extents,
    inline_all,
    named_blocks,
    parallelize,
    vectorize_last,
)
from autosplit.hardware.codegen.rules.products import schedule_tile
from autosplit.lowering.layout.tiles import Registers, Tile, tile_of
from autosplit.lowering.layout.winograd import INPUT, OUTPUT, PRODUCT, rows_at_once

# With fewer rows of tiles at once the threads share the work of each.
_FEWEST_CHUNKS = 4


def schedule_winograd(sch: Any, registers: Registers) -> None:
    """Schedule a kernel with the blocks of ``autosplit.lowering.layout.winograd``."""
    blocks = named_blocks(sch)
    names, lanes = list(blocks), registers.lanes
    transform, product, output = blocks[INPUT], blocks[PRODUCT], blocks[OUTPUT]
    _, batch, rows, columns, _ = extents(sch, transform)
    channels = extents(sch, product)[4]
    at_once = rows_at_once(rows, columns)
    behind = [blocks[name] for name in names[names.index(OUTPUT) + 1 :]]
    inline_all(sch, behind[:-1])
    result = output
    if behind and extents(sch, behind[-1]) == extents(sch, output):
        result = behind[-1]
    elif behind:
        vectorize_last(sch, behind[-1], lanes)
        parallelize(sch, sch.get_loops(behind[-1])[:-2])

    n, h, w, o = sch.get_loops(result)
    chunk, row, h_inner = sch.split(h, [None, at_once, 2])
    column, w_inner = sch.split(w, [None, 2])
    o, o_lane = sch.split(o, [None, lanes])
    sch.reorder(n, chunk, row, column, o, h_inner, w_inner, o_lane)
    if batch * rows // at_once >= _FEWEST_CHUNKS:
        parallelize(sch, [n, chunk])
        chunk = sch.get_loops(result)[-7]
        is_shared = False
    else:
        parallelize(sch, [row, column])
        is_shared = True
    if result is not output:
        sch.set_scope(output, 0, "local")
        sch.compute_at(output, o, preserve_unit_loops=True)
        _unroll(sch, sch.get_loops(output)[-3:])
    _unroll(sch, [h_inner, w_inner, o_lane])
    tile = tile_of(at_once, columns, channels, registers)
    _schedule_products(sch, product, chunk, tile, is_shared)
    _schedule_input(sch, transform, chunk, lanes, is_shared)
    if "pad" in blocks:
        vectorize_last(sch, blocks["pad"], lanes)
        parallelize(sch, sch.get_loops(blocks["pad"])[:-2])


def _schedule_products(sch: Any, product: Any, chunk: Any, tile: Tile, is_shared: bool) -> None:
    """Compute the sums of a chunk tile by tile; with ``is_shared`` the threads share them."""
    copy = sch.cache_write(product, 0, "local")
    sch.compute_at(copy, chunk, preserve_unit_loops=True)
    position, n, y, x, o = sch.get_loops(copy)[-5:]
    y, y_inner = sch.split(y, [None, tile.height])
    x, x_inner = sch.split(x, [None, tile.width])
    o, o_vector, o_lane = sch.split(o, [None, tile.vectors, tile.lanes])
    # A block of weights is read for all tiles before the next.
    sch.reorder(position, o, n, y, x, y_inner, x_inner, o_vector, o_lane)
    if is_shared:
        parallelize(sch, [position, o])
    sch.compute_at(product, x, preserve_unit_loops=True)
    schedule_tile(sch, product, 5, tile.lanes)
    _unroll(sch, [y_inner, x_inner, o_vector, o_lane])


def _schedule_input(sch: Any, transform: Any, chunk: Any, lanes: int, is_shared: bool) -> None:
    """Transform the input of a chunk; with ``is_shared`` the threads share it."""
    sch.compute_at(transform, chunk, preserve_unit_loops=True)
    position, n, y, x, c = sch.get_loops(transform)[-5:]
    c, c_lane = sch.split(c, [None, lanes])
    # All 16 sums of a tile read the same pixels, which so stay in registers.
    sch.reorder(n, y, x, c, position, c_lane)
    if is_shared:
        parallelize(sch, [n, y, x])
    _unroll(sch, [position, c_lane])


def _unroll(sch: Any, loops: list[Any]) -> None:
    """Unroll loops but the last, which becomes vectors."""
    for loop in loops[:-1]:
        sch.unroll(loop)
    sch.vectorize(loops[-1])
