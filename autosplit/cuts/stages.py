"""Nested cuts, the stages between them, and the tensors live at a cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Protocol

from autosplit.cuts.downsets import Ordered, full, members
from autosplit.errors import SplitError
from autosplit.graph import FusedGraph, bitset

Stages = tuple[tuple[int, ...], ...]


class Named(Ordered, Protocol):
    """A graph whose ops have names."""

    @property
    def name(self) -> str:
        """The name of the graph."""
        ...

    @property
    def names(self) -> Sequence[str]:
        """The names of the ops."""
        ...


def live(graph: FusedGraph, downset: int) -> tuple[str, ...]:
    """Names of the tensors that an op before the cut makes and an op after it reads.

    They are in order of production. Model inputs are not among them, and a model output only where
    an op after the cut reads it too.
    """
    produced = dict.fromkeys(name for i in members(downset) for name in graph.ops[i].outputs)
    return tuple(name for name in produced if bitset(graph.tensors[name].consumers) & ~downset)


def stages_between(graph: Ordered, cuts: Iterable[int]) -> Stages:
    """The op indices of each stage between nested cuts; the cuts are not checked."""
    ends = pairwise((0, *cuts, full(graph)))
    return tuple(tuple(members(after & ~before)) for before, after in ends)


def cuts_between(stages: Sequence[Iterable[int]]) -> tuple[int, ...]:
    """The cuts between stages; the stages are not checked. The inverse of ``stages_between``."""
    return tuple(accumulate(map(bitset, stages[:-1]), int.__or__))


def stages(graph: Named, cuts: Sequence[int]) -> Stages:
    """The op indices of each stage between K-1 nested cuts.

    Raises:
        SplitError: A cut is no downset, cuts do not nest, or a stage is empty.
    """
    for number, cut in enumerate(cuts, 1):
        _check_downset(graph, cut, number)
    for number, (before, after) in enumerate(pairwise((0, *cuts, full(graph)))):
        if outside := before & ~after:
            op = graph.names[next(members(outside))]
            raise SplitError(
                f"op '{op}' lies before cut {number} but after cut {number + 1}; cuts must nest"
            )
        if before == after:
            raise SplitError(_empty(graph, number, before))
    return stages_between(graph, cuts)


def cuts_of(graph: Named, stages: Sequence[Iterable[int]]) -> tuple[int, ...]:
    """The K-1 nested cuts between K stages of op indices; the inverse of ``stages``.

    Raises:
        SplitError: An op is in no stage or in two, or a stage is empty or out of order.
    """
    assigned = 0
    for number, ops in enumerate(stages):
        before = assigned
        for i in ops:
            if not 0 <= i < len(graph.names):
                raise SplitError(
                    f"stage {number} names op {i}, but ops are numbered 0 to {len(graph.names) - 1}"
                )
            if assigned >> i & 1:
                raise SplitError(
                    f"op '{graph.names[i]}' appears again in stage {number}; give it once"
                )
            assigned |= 1 << i
        if assigned == before:
            raise SplitError(_empty(graph, number, assigned))
    if missing := full(graph) & ~assigned:
        op = graph.names[next(members(missing))]
        raise SplitError(f"op '{op}' is in no stage; give each op a stage")
    cuts = cuts_between(stages)
    for number, (before, cut) in enumerate(pairwise((0, *cuts)), 1):
        _check_downset(graph, cut, number, before)
    return cuts


def _check_downset(graph: Named, cut: int, number: int, checked: int = 0) -> None:
    if not 0 <= cut <= full(graph):
        raise SplitError(
            f"cut {number} names op {cut.bit_length() - 1}, but ops end at {len(graph.names) - 1}"
        )
    # Every op before the cut needs its producers before it.
    for i in members(cut & ~checked):
        if missing := graph.predecessors[i] & ~cut:
            producer = graph.names[next(members(missing))]
            raise SplitError(
                f"cut {number} holds op '{graph.names[i]}' but not its producer '{producer}'; "
                "add the producer"
            )


def _empty(graph: Named, number: int, before: int) -> str:
    if not graph.names:
        return (
            f"model '{graph.name}' has no op: its outputs are its inputs; there is nothing to split"
        )
    place = f"before op '{graph.names[0]}'"
    if before:
        place = f"after op '{graph.names[max(members(before))]}'"
    return f"stage {number} is empty ({place}); give it an op or use fewer stages"
