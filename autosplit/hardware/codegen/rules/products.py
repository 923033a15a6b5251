"""Rule for packed convolutions and matrix products: a tile of the output stays in registers.

It stays there for the whole reduction and is written once, after the ops that are fused behind.
"""

from __future__ import annotations

from typing import Any

from autosplit.hardware.codegen.rules.blocks import (
    PARTITION,
    extent,
    extents,
    inline_all,
    loops_of,
    named_blocks,
    parallelize,
    vectorize_last,
)
from autosplit.lowering.layout.tiles import Registers, tile_of

# Input channels in one unrolled step: the loads of one overlap with the arithmetic of the others.
_UNROLLED_CHANNELS = 4


def schedule_product(sch: Any, name: str, registers: Registers) -> None:
    """Schedule a kernel whose block ``name`` is a packed convolution or matrix product."""
    blocks = named_blocks(sch)
    names = list(blocks)
    product = blocks[name]
    behind = [blocks[other] for other in names[names.index(name) + 1 :]]
    inline_all(sch, behind[:-1])
    spatial, reduction = loops_of(sch, product)
    # A product of matrices reduces over one axis; in images a tile may have several rows.
    rank, is_image = len(spatial), len(spatial) == 4 and len(reduction) > 1
    annotations = sch.get(product).annotations
    padded, width = int(annotations["padded_channels"]), int(annotations["row_width"])
    height = extents(sch, product)[1] if is_image else 1
    tile = tile_of(height, width, padded, registers)
    last = behind[-1] if behind else None
    result = _result_of(sch, product, last, rank, tile.lanes)

    *outer, w, o = sch.get_loops(result)
    has_rest = (extent(sch, o) % tile.channels > 0, extent(sch, w) % tile.width > 0)
    o_block, o_vector, o_lane = sch.split(o, [None, tile.vectors, tile.lanes])
    w_tile, w_inner = sch.split(w, [None, tile.width])
    inner = [w_inner, o_vector]
    image = []
    if is_image:
        h_tile, h_inner = sch.split(outer.pop(), [None, tile.height])
        image, inner = [h_tile], [h_inner, *inner]
    # One block of weights is used for the whole image before the next one, so it is read from
    # memory once, and from the cache for every further tile.
    around = [o_block, *outer] if "shared_weights" in annotations else [*outer, o_block]
    sch.reorder(*around, *image, w_tile, *inner, o_lane)
    for loop, is_uneven in zip((o_block, w_tile), has_rest, strict=True):
        if is_uneven:
            sch.annotate(loop, PARTITION, 1)
    if has_rest[0]:
        sch.parallel(o_block)
    else:
        parallelize(sch, [*around, *image])
    sch.compute_at(product, w_tile, preserve_unit_loops=True)
    schedule_tile(sch, product, rank, tile.lanes)
    for loop in inner:
        sch.unroll(loop)
    sch.vectorize(o_lane)
    if "pad" in blocks:
        pad = blocks["pad"]
        vectorize_last(sch, pad, registers.lanes)
        parallelize(sch, sch.get_loops(pad)[:-2])


def _result_of(sch: Any, product: Any, last: Any, rank: int, lanes: int) -> Any:
    """The block that writes the result: the last one fused behind the product, or a copy."""
    if last is not None and _is_tileable(sch, product, last, rank, lanes):
        sch.set_scope(product, 0, "local")
        return last
    if last is not None:
        vectorize_last(sch, last, lanes)
        parallelize(sch, sch.get_loops(last)[:-2])
    return sch.cache_write(product, 0, "local")


def _is_tileable(sch: Any, product: Any, last: Any, rank: int, lanes: int) -> bool:
    """Whether each element of the last block reads the same element of the product."""
    sizes, product_sizes = extents(sch, last), extents(sch, product)[:rank]
    if len(sizes) != rank or sizes[:-2] != product_sizes[:-2]:
        return False
    annotations = sch.get(product).annotations
    width, channels = int(annotations["row_width"]), int(annotations["group_channels"])
    groups = product_sizes[-1] // int(annotations["padded_channels"])
    # A partial vector would be written number by number, which takes very much code.
    is_cut = groups > 1 or channels % lanes > 0
    return sizes[-2:] == [width, product_sizes[-1] if is_cut else channels]


def schedule_tile(sch: Any, product: Any, rank: int, lanes: int) -> None:
    """Schedule the loops of one tile: the reduction outside, the tile unrolled inside."""
    around = len(sch.get_loops(product)) - len(sch.get(product).iter_vars)
    loops = sch.get_loops(product)[around:]
    *spatial, o = loops[:rank]
    reduction = loops[rank:]
    vector, lane = sch.split(o, [None, lanes])
    sch.reorder(*reduction, *spatial, vector, lane)
    if extent(sch, reduction[-1]) % _UNROLLED_CHANNELS == 0:
        reduction[-1], unrolled = sch.split(reduction[-1], [None, _UNROLLED_CHANNELS])
        sch.unroll(unrolled)
    for loop in (*spatial, vector):
        sch.unroll(loop)
    sch.vectorize(lane)
    start = sch.decompose_reduction(product, reduction[0])
    *tile, lane = sch.get_loops(start)[around:]
    for loop in tile:
        sch.unroll(loop)
    sch.vectorize(lane)
