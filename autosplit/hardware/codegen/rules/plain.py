"""Rules for kernels that are not matrix products: elementwise, pools, reductions, copies."""

from __future__ import annotations

from math import prod
from typing import Any

from autosplit.hardware.codegen.rules.blocks import (
    dividing_lanes,
    extent,
    inline_all,
    loops_of,
    named_blocks,
    parallelize,
    reduces_along_memory,
    vectorize_last,
)
from autosplit.lowering.layout.tiles import Registers

# Vectors at once in a product with one row: long contiguous reads of weights suit the prefetcher.
_STRETCH = 64
# Independent partial sums of a row, because an addition waits for the one before it.
_ACCUMULATORS = 4
# A vector of fewer numbers gains nothing.
_FEWEST_LANES = 4


def schedule_plain(sch: Any, registers: Registers) -> None:
    """Schedule every block by itself: vectors along the innermost axis, reductions around them."""
    inline_all(sch, list(named_blocks(sch).values()))
    for block in named_blocks(sch).values():
        spatial, reduction = loops_of(sch, block)
        if reduction and reduces_along_memory(sch, block):
            _reduce_rows(sch, block, len(spatial), reduction, registers.lanes)
        elif reduction and spatial:
            _reduce_columns(sch, block, spatial, reduction, registers.lanes)
        elif spatial:
            vectorize_last(sch, block, registers.lanes)
            parallelize(sch, sch.get_loops(block)[: len(spatial) - 1])


def schedule_swap(sch: Any, block: Any) -> None:
    """Schedule a copy of (n, a, b) to (n, b, a) of any size."""
    i, j, k = sch.get_loops(block)
    # A cache line that is read holds 16 numbers; the 16 lines they go to stay in the cache until
    # the next reads have filled them.
    outer, inner = sch.split(j, [None, 16])
    sch.reorder(i, outer, k, inner)
    sch.parallel(outer)


def _reduce_rows(sch: Any, block: Any, rank: int, reduction: list[Any], lanes: int) -> None:
    """Reduce each row, contiguous in memory, to a few vectors first, then these to one number."""
    length = extent(sch, reduction[-1])
    lanes = dividing_lanes(length, lanes)
    if lanes < _FEWEST_LANES:
        return
    # The vectors' numbers are added one by one in the end, so more vectors slow down a short row.
    vectors = 1
    while vectors < _ACCUMULATORS and length >= (2 * vectors * lanes) ** 2:
        vectors *= 2
    vectors = dividing_lanes(length // lanes, vectors)
    _, lane = sch.split(reduction[-1], [None, vectors * lanes])
    partial = sch.rfactor(lane, factor_axis=rank)
    loops = sch.get_loops(partial)
    vector, lane = sch.split(loops[-1], [vectors, lanes])
    sch.unroll(vector)
    sch.vectorize(lane)
    parallelize(sch, loops[:rank])
    sch.decompose_reduction(partial, loops[rank])


def _reduce_columns(
    sch: Any, block: Any, spatial: list[Any], reduction: list[Any], lanes: int
) -> None:
    """Reduce across rows: a vector of neighbouring results is computed at once."""
    lanes = dividing_lanes(extent(sch, spatial[-1]), lanes)
    if lanes < _FEWEST_LANES:
        return
    count = extent(sch, spatial[-1]) // lanes
    rows = prod(extent(sch, loop) for loop in spatial[:-1])
    vectors = 1
    if rows == 1 and len(reduction) == 1:
        vectors = max(d for d in range(1, min(count, _STRETCH) + 1) if count % d == 0)
    outer, vector, lane = sch.split(spatial[-1], [None, vectors, lanes])
    sch.reorder(*spatial[:-1], outer, *reduction, vector, lane)
    sch.vectorize(lane)
    parallelize(sch, [*spatial[:-1], outer])
    sch.decompose_reduction(block, reduction[0])
