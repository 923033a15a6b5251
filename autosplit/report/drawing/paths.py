"""The split graph as levels of slots: boxes of ops, tensors on cuts, and the paths of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from autosplit.cuts.stages import cuts_of, live
from autosplit.graph import FusedGraph
from autosplit.report.drawing.collapse import Group, collapse

_MAX_TENSORS = 6  # shown one by one on a cut; of more the smallest share a slot


@dataclass(frozen=True)
class Slot:
    """A place in a level: ops, tensors on a cut, an input or output, or passing edges.

    ``tensors`` are those of a tensor, input or output slot. Edges from one ``anchor`` share their
    path through a level.
    """

    kind: Literal["op", "tensor", "input", "output", "through"]
    level: int
    stage: int = 0
    ops: tuple[int, ...] = ()
    tensors: tuple[str, ...] = ()
    anchor: Slot | None = None


@dataclass(frozen=True)
class Paths:
    """The levels with their slots, the edges between them, and the tensors of each cut."""

    levels: tuple[tuple[Slot, ...], ...]
    edges: tuple[tuple[Slot, Slot], ...]
    cut_levels: tuple[int, ...]
    live: tuple[tuple[str, ...], ...]
    stage_levels: tuple[tuple[int, int], ...]


def trace(graph: FusedGraph, stages: Sequence[Sequence[int]], levels: int, boxes: int = 4) -> Paths:
    """The levels and edges of a split. Raises SplitError if ``stages`` are no split."""
    cuts = cuts_of(graph, stages)
    groups = collapse(graph, stages, levels, boxes)
    # A stage is as wide as the longest chain of its boxes.
    widths = [1 + max(g.band for g in groups if g.stage == s) for s in range(len(stages))]
    # level 0 holds inputs; a cut follows each stage
    starts = list(accumulate((w + 1 for w in widths), initial=1))
    spans = tuple((start, start + w) for start, w in zip(starts, widths, strict=False))
    tracer = _Tracer(graph, groups, spans, tuple(live(graph, cut) for cut in cuts))
    for name in dict.fromkeys((*graph.inputs, *(t for op in graph.ops for t in op.outputs))):
        tracer.follow(name)
    return tracer.paths()


class _Tracer:
    """Leads every tensor from its producer to the last box that reads it, level by level."""

    def __init__(
        self,
        graph: FusedGraph,
        groups: Sequence[Group],
        spans: tuple[tuple[int, int], ...],
        crossing: tuple[tuple[str, ...], ...],
    ) -> None:
        self._graph, self._spans, self._live = graph, spans, crossing
        self._cuts = tuple(end for _, end in spans[:-1])
        self._last = spans[-1][1] if spans else 1
        boxes = [Slot("op", spans[g.stage][0] + g.band, g.stage, g.ops) for g in groups]
        self._box = {i: box for box in boxes for i in box.ops}
        self._slots = dict.fromkeys(boxes)
        self._edges: dict[tuple[Slot, Slot], None] = {}
        self._on_cut = {}
        for level, names in zip(self._cuts, crossing, strict=True):
            self._on_cut[level] = _cut_slots(graph, level, names)

    def follow(self, name: str) -> None:
        """Add the path of one tensor: the slots it passes and the edges between them."""
        tensor, output = self._graph.tensors[name], name in self._graph.outputs
        if tensor.producer is None and not tensor.consumers and not output:
            return
        here = Slot("input", 0, tensors=(name,))
        if tensor.producer is not None:
            here = self._box[tensor.producer]
        # A box may hold both ends of a tensor: then nothing is drawn.
        readers = {self._box[c] for c in tensor.consumers} - {here}
        if output:
            readers.add(Slot("output", self._last, tensors=(name,)))
        self._slots.setdefault(here)
        anchor = here
        end = max((r.level for r in readers), default=0)
        # An edge joins neighbouring levels alone, so a long one passes a slot in each level.
        for level in range(here.level + 1, end + 1):
            in_level = [r for r in readers if r.level == level]
            for reader in sorted(in_level, key=lambda r: r.ops):
                self._join(here, reader)
            if level < end:
                on_cut = self._on_cut.get(level, {}).get(name)
                passed = on_cut or Slot("through", level, anchor=anchor)
                anchor = on_cut or anchor
                self._join(here, passed)
                here = passed

    def paths(self) -> Paths:
        """All that was followed; empty levels stay, so that numbers do."""
        levels: list[list[Slot]] = [[] for _ in range(self._last + 1)]
        for slot in self._slots:
            levels[slot.level].append(slot)
        edges = tuple(self._edges)
        return Paths(tuple(map(tuple, levels)), edges, self._cuts, self._live, self._spans)

    def _join(self, a: Slot, b: Slot) -> None:
        self._slots.setdefault(a)
        self._slots.setdefault(b)
        self._edges.setdefault((a, b))


def _cut_slots(graph: FusedGraph, level: int, names: Sequence[str]) -> dict[str, Slot]:
    """For each tensor on a cut the slot that shows it."""
    # What costs most is shown by itself.
    alone = sorted(names, key=lambda n: -graph.tensors[n].bytes)
    rest: list[str] = []
    if len(alone) > _MAX_TENSORS:
        alone, rest = alone[: _MAX_TENSORS - 1], alone[_MAX_TENSORS - 1 :]
    slots = {name: Slot("tensor", level, tensors=(name,)) for name in alone}
    return slots | dict.fromkeys(rest, Slot("tensor", level, tensors=tuple(rest)))
