"""Kernels that are no matrix products: elementwise, pools, reductions, copies."""

from __future__ import annotations

from math import prod
from typing import Any

from autosplit.hardware.codegen.rules.blocks import (
    dividing_lanes,
    extent,
    inline_all,
    loops_of,
    named_blocks,
    vectorize_last,
)
from autosplit.lowering.layout.tiles import Registers

# A matrix by one row reads each weight once: long stretches of a row keep the prefetcher going.
_STRETCH = 64


def schedule_plain(sch: Any, registers: Registers) -> None:
    """Schedule every block by itself: vectors along the innermost axis, reductions around them."""
    inline_all(sch, list(named_blocks(sch).values()))
    for block in named_blocks(sch).values():
        spatial, reduction = loops_of(sch, block)
        if not spatial:
            continue
        if not reduction:
            vectorize_last(sch, block, registers.lanes)
            continue
        lanes = dividing_lanes(extent(sch, spatial[-1]), registers.lanes)
        if lanes < 4:
            continue
        rows = prod(extent(sch, loop) for loop in spatial[:-1])
        if rows == 1 and len(reduction) == 1:
            count = extent(sch, spatial[-1]) // lanes
            vectors = max(d for d in range(1, min(count, _STRETCH) + 1) if count % d == 0)
            outer, vector, lane = sch.split(spatial[-1], [None, vectors, lanes])
            sch.reorder(*spatial[:-1], outer, *reduction, vector, lane)
        else:
            outer, lane = sch.split(spatial[-1], [None, lanes])
            sch.reorder(*spatial[:-1], outer, *reduction, lane)
        sch.vectorize(lane)
        sch.decompose_reduction(block, reduction[0])
