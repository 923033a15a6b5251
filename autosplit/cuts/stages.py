"""Nested cuts, the stages between them, and the tensors live at a cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TypeVar

from autosplit.cuts.downsets import bitset, full, members
from autosplit.errors import SplitError
from autosplit.graph import FusedGraph

Stages = tuple[tuple[int, ...], ...]
_Device = TypeVar("_Device")


def live(graph: FusedGraph, downset: int) -> tuple[str, ...]:
    """Names of the tensors that an op before the cut makes and an op after it reads.

    They are in order of production. Model inputs are not among them, and a model output only where
    an op after the cut reads it too.
    """
    produced = dict.fromkeys(name for i in members(downset) for name in graph.ops[i].outputs)
    return tuple(name for name in produced if bitset(graph.tensors[name].consumers) & ~downset)


def stages(graph: FusedGraph, cuts: Sequence[int]) -> Stages:
    """The op indices of each stage between K-1 nested cuts.

    Raises:
        SplitError: A cut is no downset, cuts do not nest, or a stage is empty.
    """
    ends = (0, *cuts, full(graph))
    for number, cut in enumerate(cuts, 1):
        _check_downset(graph, cut, number)
    for number, (before, after) in enumerate(pairwise(ends)):
        if outside := before & ~after:
            op = graph.ops[next(members(outside))].name
            raise SplitError(
                f"op '{op}' lies before cut {number} but after cut {number + 1}; cuts must nest"
            )
        if before == after:
            raise SplitError(_empty(graph, number, before))
    return tuple(tuple(members(after & ~before)) for before, after in pairwise(ends))


def cuts_of(graph: FusedGraph, stages: Iterable[Iterable[int]]) -> tuple[int, ...]:
    """The K-1 nested cuts between K stages of op indices; the inverse of ``stages``.

    Raises:
        SplitError: An op is in no stage or in two, or the stages are not in order.
    """
    assigned = 0
    cuts = []
    for number, ops in enumerate(map(tuple, stages)):
        for i in ops:
            if not 0 <= i < len(graph.ops):
                raise SplitError(
                    f"stage {number} names op {i}, but ops are numbered 0 to {len(graph.ops) - 1}"
                )
            if assigned >> i & 1:
                raise SplitError(
                    f"op '{graph.ops[i].name}' appears again in stage {number}; give it once"
                )
            assigned |= 1 << i
        if not ops:
            raise SplitError(_empty(graph, number, assigned))
        cuts.append(assigned)
    if missing := full(graph) & ~assigned:
        op = graph.ops[next(members(missing))].name
        raise SplitError(f"op '{op}' is in no stage; give each op a stage")
    for number, cut in enumerate(cuts, 1):
        _check_downset(graph, cut, number)
    return tuple(cuts[:-1])


def _check_downset(graph: FusedGraph, cut: int, number: int) -> None:
    if not 0 <= cut <= full(graph):
        raise SplitError(
            f"cut {number} names op {cut.bit_length() - 1}, but ops end at {len(graph.ops) - 1}"
        )
    # Every op before the cut needs its producers before it.
    for i in members(cut):
        if missing := graph.predecessors[i] & ~cut:
            producer = graph.ops[next(members(missing))].name
            raise SplitError(
                f"cut {number} holds op '{graph.ops[i].name}' but not its producer '{producer}'; "
                "add the producer"
            )


def _empty(graph: FusedGraph, number: int, before: int) -> str:
    ops = graph.ops
    if not ops:
        return (
            f"model '{graph.name}' has no op: its outputs are its inputs; there is nothing to split"
        )
    place = f"before op '{ops[0].name}'"
    if before:
        place = f"after op '{ops[max(members(before))].name}'"
    return f"stage {number} is empty ({place}); give it an op or use fewer stages"


def used(stages: Sequence[Sequence[int]], devices: Sequence[_Device]) -> list[_Device]:
    """The devices of the stages that are not empty."""
    return [device for ops, device in zip(stages, devices, strict=True) if ops]


def with_unused(stages: Sequence[Sequence[int]], times: Sequence[float]) -> tuple[float, ...]:
    """A time for every stage from those of the stages that are not empty, which take no time."""
    remaining = iter(times)
    return tuple(next(remaining) if ops else 0.0 for ops in stages)
