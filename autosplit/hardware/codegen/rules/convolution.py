"""Packed convolutions: a tile of the output stays in registers over the whole reduction."""

from __future__ import annotations

from typing import Any

from autosplit.hardware.codegen.rules.blocks import (
    extent,
    extents,
    inline_all,
    named_blocks,
    vectorize_last,
)
from autosplit.lowering.layout.convolution import PACKED
from autosplit.lowering.layout.tiles import Registers, tile_of

# So many input channels at once: the loads of one are hidden behind the arithmetic of the others.
_UNROLLED_CHANNELS = 4


def schedule_convolution(sch: Any, registers: Registers) -> None:
    """Schedule a kernel with a packed convolution, whatever is fused behind it."""
    blocks = named_blocks(sch)
    names = list(blocks)
    conv = blocks[PACKED]
    behind = [blocks[name] for name in names[names.index(PACKED) + 1 :]]
    inline_all(sch, behind[:-1])
    result = _result_of(sch, conv, behind[-1] if behind else None, registers)
    _, height, width, channels = extents(sch, conv)[:4]
    group = int(sch.get(conv).annotations.get("autosplit.group", channels))
    tile = tile_of(height, width, group, registers)

    batch, h, w, o = sch.get_loops(result)
    o_block, o_vector, o_lane = sch.split(o, [None, tile.vectors, tile.lanes])
    h_tile, h_inner = sch.split(h, [None, tile.height])
    w_tile, w_inner = sch.split(w, [None, tile.width])
    # One block of weights goes over the whole image before the next, so it is read from memory
    # once and from the cache for every further tile.
    sch.reorder(batch, o_block, h_tile, w_tile, h_inner, w_inner, o_vector, o_lane)
    sch.compute_at(conv, w_tile, preserve_unit_loops=True)
    _schedule_tile(sch, conv, tile.lanes)
    for loop in (h_inner, w_inner, o_vector):
        sch.unroll(loop)
    sch.vectorize(o_lane)
    if "pad" in blocks:
        vectorize_last(sch, blocks["pad"], registers.lanes)


def _result_of(sch: Any, conv: Any, last: Any, registers: Registers) -> Any:
    """The block that writes the result: what is fused behind the convolution, or a copy."""
    if last is not None and extents(sch, last) == extents(sch, conv)[:4]:
        sch.set_scope(conv, 0, "local")
        return last
    if last is not None:
        vectorize_last(sch, last, registers.lanes)
    return sch.cache_write(conv, 0, "local")


def _schedule_tile(sch: Any, conv: Any, lanes: int) -> None:
    """The loops of one tile: the reduction outside, the tile unrolled inside."""
    batch, h, w, o, *reduction = sch.get_loops(conv)[4:]
    vector, lane = sch.split(o, [None, lanes])
    sch.reorder(*reduction, batch, h, w, vector, lane)
    if extent(sch, reduction[-1]) % _UNROLLED_CHANNELS == 0:
        sch.unroll(sch.split(reduction[-1], [None, _UNROLLED_CHANNELS])[1])
    for loop in (batch, h, w, vector):
        sch.unroll(loop)
    sch.vectorize(lane)
    start = sch.decompose_reduction(conv, reduction[0])
    *tile, lane = sch.get_loops(start)[4:]
    for loop in tile:
        sch.unroll(loop)
    sch.vectorize(lane)
