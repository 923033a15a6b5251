"""Queries about a kernel's blocks and loops, and scheduling steps that the rules share."""

from __future__ import annotations

from typing import Any

from autosplit.extras import s_tir

_SPATIAL, _REDUCTION = 0, 2
# Divides a loop into its full steps and a last partial one, each with code of its own.
PARTITION = "pragma_loop_partition_hint"
# So many steps of a parallel loop are enough that no thread waits long for others at its end.
_STEPS = 16


def named_blocks(sch: Any) -> dict[str, Any]:
    """The blocks of a kernel by name, in order."""
    root = sch.get_sblock("root")
    return {sch.get(block).name_hint: block for block in sch.get_child_blocks(root)}


def extent(sch: Any, loop: Any) -> int:
    """The length of a loop."""
    return int(sch.get(loop).extent)


def extents(sch: Any, block: Any) -> list[int]:
    """The lengths of the loops around a block, outermost first."""
    return [extent(sch, loop) for loop in sch.get_loops(block)]


def loops_of(sch: Any, block: Any) -> tuple[list[Any], list[Any]]:
    """The loops around a block that are spatial, and those it reduces over."""
    kinds = [int(variable.iter_type) for variable in sch.get(block).iter_vars]
    loops = sch.get_loops(block)
    # A block of scalars has a variable, but no loop.
    pairs = list(zip(loops, kinds, strict=False))
    spatial = [loop for loop, kind in pairs if kind == _SPATIAL]
    return spatial, [loop for loop, kind in pairs if kind == _REDUCTION]


def reduces_along_memory(sch: Any, block: Any) -> bool:
    """Whether a block reduces along the last axis, contiguous in memory, of all that it reads."""
    kinds = set()
    for region in sch.get(block).reads:
        axes = list(region.region)
        for variable in sch.get(block).iter_vars:
            if axes and axes[-1].min.same_as(variable.var):
                kinds.add(int(variable.iter_type))
    return kinds == {_REDUCTION}


def inline_all(sch: Any, blocks: list[Any]) -> None:
    """Inline every block that exactly one other block reads, from the last to the first.

    Results that several blocks read are computed once, as the expensive exponentials of softmax.
    """
    for block in reversed(blocks):
        kinds = {int(variable.iter_type) for variable in sch.get(block).iter_vars}
        if _REDUCTION not in kinds and len(sch.get_consumers(block)) == 1:
            try:
                sch.compute_inline(block)
            except s_tir.ScheduleError:
                continue


def vectorize_last(sch: Any, block: Any, lanes: int) -> None:
    """Vectorise the innermost loop of a block."""
    loop = sch.get_loops(block)[-1]
    length = extent(sch, loop)
    # All lanes only in a long loop: what is left at its end is computed number by number.
    dividing = dividing_lanes(length, lanes)
    if dividing >= lanes // 2 or length < 4 * lanes:
        lanes = dividing
    if lanes > 1:
        outer, lane = sch.split(loop, [None, lanes])
        if length % lanes:
            sch.annotate(outer, PARTITION, 1)
        sch.vectorize(lane)


def dividing_lanes(size: int, lanes: int) -> int:
    """The most lanes, a power of two, that divide a size."""
    while size % lanes:
        lanes //= 2
    return lanes


def parallelize(sch: Any, loops: list[Any]) -> None:
    """Divide the outermost loops of a kernel among the threads of its stage.

    It fuses as few loops as give every thread several steps. A stage with one thread calls the body
    of the loop directly.
    """
    fused = loops[:1]
    steps = extent(sch, loops[0]) if loops else 0
    for loop in loops[1:]:
        if steps >= _STEPS:
            break
        fused.append(loop)
        steps *= extent(sch, loop)
    if steps > 1:
        sch.parallel(sch.fuse(*fused) if len(fused) > 1 else fused[0])
