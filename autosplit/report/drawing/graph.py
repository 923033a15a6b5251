"""The fused graph from top to bottom, coloured by stage, with the live tensors on every cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autosplit.cuts import bitset
from autosplit.graph import FusedGraph, build
from autosplit.report.documents.inspection import shape_text
from autosplit.report.drawing.canvas import Canvas, colour, label, lines
from autosplit.report.drawing.layout import arrange
from autosplit.report.drawing.paths import Paths, Slot, trace
from autosplit.units import counted, milliseconds, size

_HEAD, _FOOT, _LINE, _SIDE = 52, 56, 14, 12
_GAP, _LEVEL_GAP, _STAGE_HEAD, _CUT_HEAD = 12, 26, 24, 16  # between boxes, levels, stages, at cuts
_WIDTHS = {"op": 152.0, "tensor": 152.0, "input": 120.0, "output": 120.0, "through": 8.0}
_MIN_WIDTH = 440  # of a picture: room for its texts
_LEVELS = 10  # levels of boxes in a picture; more where there are many stages
_LETTERS = 24  # characters that fit into a box
_MAX_NAMES = 12  # of tensors or source nodes that a box names when pointed at
_LEGEND = (
    "box: fused op, border in the colour of its stage; grey border: input or output",
    "dashed: cut; round: live tensor with its size, sent once over the cut",
)


@dataclass(frozen=True)
class SplitGraph:
    """What to draw: a graph, its ``stages`` (lists of op indices), and what is known of them.

    ``names`` label the stages. ``op_ms`` are times of the ops in ms, in the order of ``graph.ops``;
    boxes show their sums. ``link``: with it a box of several ops links to the element on the page
    that shows its ``parts``. ``ops`` and ``stage`` place a part in the whole graph: the indices of
    its ops and the stage that they belong to.
    """

    graph: FusedGraph
    stages: Sequence[Sequence[int]]
    names: Sequence[str] = ()
    op_ms: Sequence[float] = ()
    link: str = ""
    ops: Sequence[int] = ()
    stage: int = 0

    def draw(self, title: str = "") -> Canvas:
        """The picture. Raises SplitError if ``stages`` are no split of the graph."""
        levels = max(_LEVELS, len(self.stages) + 4)
        return _Picture(self, trace(self.graph, self.stages, levels)).draw(title)

    def parts(self) -> Iterator[tuple[str, str, Canvas]]:
        """For each box with several ops its link, its title, and a picture with a box for each."""
        paths = trace(self.graph, self.stages, max(_LEVELS, len(self.stages) + 4))
        for slot in (slot for level in paths.levels for slot in level):
            if len(slot.ops) > 1:
                part = self._part(slot)
                # as many levels and boxes as there are ops, so that no two share a box
                inner = trace(part.graph, part.stages, len(slot.ops), len(slot.ops))
                title = f"{part.box_name(slot.stage)}: {counted(len(slot.ops), 'fused op')}"
                yield self.link_of(slot.ops), title, _Picture(part, inner).draw(title)

    def link_of(self, ops: Sequence[int]) -> str:
        """The link of a box; empty if there is nothing more to show of it."""
        return f"{self.link}-{ops[0]}" if self.link and len(ops) > 1 else ""

    def box_name(self, stage: int) -> str:
        """A stage by its number and its name."""
        name = [self.names[stage]] if stage < len(self.names) else []
        return ", ".join([f"stage {stage}", *name])

    def _part(self, slot: Slot) -> SplitGraph:
        """The ops of a box as a graph of one stage."""
        ops = [self.graph.ops[i] for i in slot.ops]
        produced = [t for op in ops for t in op.outputs]
        names = dict.fromkeys(produced)
        for op in ops:
            names |= dict.fromkeys(op.inputs)
        tensors = {name: self.graph.tensors[name] for name in names}
        shapes = {name: (t.shape, t.dtype, t.bytes) for name, t in tensors.items()}
        inputs = [name for name in names if name not in produced]
        outputs = []
        for name in produced:
            if name in self.graph.outputs or set(tensors[name].consumers) - set(slot.ops):
                outputs.append(name)
        graph = build(self.graph.name, ops, shapes, inputs, outputs)
        times = [self.op_ms[i] for i in slot.ops] if self.op_ms else ()
        return SplitGraph(
            graph, [range(len(ops))], self.names, times, ops=slot.ops, stage=slot.stage
        )


class _Picture:
    """Every slot with its text and its place."""

    def __init__(self, view: SplitGraph, paths: Paths) -> None:
        self.view, self.graph, self.stages, self.paths = view, view.graph, view.stages, paths
        self.op_ms = view.op_ms if len(view.op_ms) == len(view.graph.ops) else ()
        self.states = {t for state in self.graph.states for t in (state.input, state.tensor)}
        slots = [slot for level in paths.levels for slot in level]
        self.text = {slot: self._slot_text(slot) for slot in slots}
        self.heights = {slot: len(text) * _LINE + 8.0 for slot, text in self.text.items()}
        xs = arrange(paths.levels, paths.edges, {s: _WIDTHS[s.kind] for s in slots}, _GAP)
        right = max((x + _WIDTHS[slot.kind] / 2 for slot, x in xs.items()), default=0.0)
        self.width = max(_MIN_WIDTH, int(right) + 4 * _SIDE)
        aside = (self.width - right) / 2
        self.at: dict[Slot, tuple[float, float]] = {}
        self.tops: list[float] = []  # of the levels
        bottom = _HEAD + 0.0
        for number, level in enumerate(paths.levels):
            first_of_stage = number in {start for start, _ in paths.stage_levels}
            top = bottom + _LEVEL_GAP + _STAGE_HEAD * first_of_stage
            top += _CUT_HEAD * (number in paths.cut_levels)
            self.tops.append(top)
            tallest = max((self.heights[slot] for slot in level), default=0.0)
            self.at |= {slot: (xs[slot] + aside, top + tallest / 2) for slot in level}
            bottom = top + tallest
        self.bottom = bottom

    def draw(self, title: str) -> Canvas:
        """The picture with its title and legend."""
        canvas = Canvas(self.width, int(self.bottom) + _FOOT)
        title = title or f"{self.graph.name}: {counted(len(self.stages), 'stage')}"
        canvas.text(_SIDE, 18, label(title, self.width // 10), "bold", px=15)
        count = counted(len(self.graph.ops), "fused op")
        canvas.text(_SIDE, 38, f"{count}; a box with several ops stands for all of them")
        self._draw_stages(canvas)
        self._draw_cuts(canvas)
        for producer, reader in self.paths.edges:
            self._draw_edge(canvas, producer, reader)
        for slot in self.at:
            self._draw_slot(canvas, slot)
        for number, line in enumerate(_LEGEND):
            canvas.text(_SIDE, self.bottom + 26 + number * _LINE, line, px=10)
        return canvas

    def _slot_text(self, slot: Slot) -> list[str]:
        tensors = self.graph.tensors
        if slot.kind == "op":
            return self._op_text(slot.ops)
        if slot.kind == "tensor":
            total = size(sum(tensors[t].bytes for t in slot.tensors))
            # The smallest tensors of a crowded cut share a box.
            first, *others = slot.tensors
            if others:
                return [f"{len(slot.tensors)} tensors", total]
            return [*lines(first, _LETTERS - 2), total]
        if slot.kind in ("input", "output"):
            (name, *_), state = slot.tensors, ["state"] if slot.tensors[0] in self.states else []
            return [*state, *lines(name, 19), size(tensors[name].bytes)]
        return []

    def _op_text(self, ops: Sequence[int]) -> list[str]:
        # A name is broken where its box ends, since SVG does not wrap text.
        limit = _LETTERS
        names = [self.graph.ops[i].name for i in ops]
        if len(names) == 1:
            text = lines(names[0], limit, 3)
        elif len(names) <= 3:
            text = [label(name, limit) for name in names]
        else:
            first, last = lines(names[0], limit), lines(names[-1], limit)
            text = [counted(len(names), "op"), *first, "…", *last]
        if self.op_ms:
            text.append(milliseconds(sum(self.op_ms[i] for i in ops)))
        return text

    def _title(self, slot: Slot) -> str:
        """What a box says when pointed at."""
        if not slot.ops:
            return "\n".join(self._tensor_line("", t) for t in slot.tensors[:_MAX_NAMES])
        first, last = self.graph.ops[slot.ops[0]], self.graph.ops[slot.ops[-1]]
        took = self._took(slot.ops)
        place = self.view.box_name(self.view.stage + slot.stage)
        if len(slot.ops) > 1:
            count = counted(len(slot.ops), "fused op")
            return f"{count}{took}\nfrom {first.name} to {last.name}\n{place}"
        title = [f"{first.name}{took}", place]
        title += [self._tensor_line("reads ", t) for t in dict.fromkeys(first.inputs)]
        title += [self._tensor_line("makes ", t) for t in first.outputs]
        if first.sources:
            title.append(f"source nodes: {', '.join(first.sources[:_MAX_NAMES])}")
        return "\n".join(title)

    def _took(self, ops: Sequence[int]) -> str:
        return f", {milliseconds(sum(self.op_ms[i] for i in ops))}" if self.op_ms else ""

    def _tensor_line(self, verb: str, name: str) -> str:
        tensor = self.graph.tensors[name]
        shape = f"{shape_text(tensor.shape)} {tensor.dtype}"
        state = ", state of a stream" if name in self.states else ""
        return f"{verb}{name}: {shape}, {size(tensor.bytes)}{state}"

    def _draw_stages(self, canvas: Canvas) -> None:
        for stage, (first, end) in enumerate(self.paths.stage_levels):
            number, ops = self.view.stage + stage, self.stages[stage]
            top = self.tops[first] - _STAGE_HEAD
            bottom = self.tops[end] - _CUT_HEAD - 10 if end < len(self.tops) else self.bottom
            place = (_SIDE / 2, top, self.width - _SIDE, bottom - top)
            canvas.rectangle(*place, fill=colour(number), fill_opacity=0.1)
            count = counted(len(ops), "op") + self._took(ops)
            canvas.text(self.width - _SIDE, top + 11, count, "end")
            name = label(self.view.box_name(number), (self.width - 7 * len(count)) // 8)
            canvas.text(_SIDE, top + 11, name, "bold", px=12)

    def _draw_cuts(self, canvas: Canvas) -> None:
        cuts = zip(self.paths.cut_levels, self.paths.live, strict=True)
        for number, (level, tensors) in enumerate(cuts, 1):
            y = self.tops[level] + max(self.heights[s] for s in self.paths.levels[level]) / 2
            ends = (_SIDE / 2, self.width - _SIDE / 2)
            canvas.line(ends, (y, y), "line", stroke_dasharray="8 5", stroke_width=2)
            total = size(sum(self.graph.tensors[t].bytes for t in tensors))
            text = f"cut {number}: {total} in {counted(len(tensors), 'tensor')}"
            canvas.text(_SIDE, self.tops[level] - 8, text, "bold")

    def _draw_slot(self, canvas: Canvas, slot: Slot) -> None:
        text, (x, y) = self.text[slot], self.at[slot]
        half, height = _WIDTHS[slot.kind] / 2, self.heights[slot]
        if slot.kind == "through":
            canvas.line((x, x), (y - height / 2, y + height / 2), "wire")
            return
        kind, rounding, edge = "paper faint", 8.0, ""
        if slot.kind == "op":
            kind, rounding, edge = "paper wide", 3.0, colour(self.view.stage + slot.stage)
        elif slot.kind == "tensor":
            kind, rounding = "paper line", height / 2
        # The count of several ops and the size of a tensor are bold.
        bold = None
        if slot.kind == "tensor":
            bold = len(text) - 1
        elif len(slot.ops) > 3:
            bold = 0
        # The lines stand in the middle of their box.
        top = y - (len(text) - 1) * _LINE / 2
        ops = f"{bitset(self.view.ops[i] if self.view.ops else i for i in slot.ops):x}"
        with canvas.group(self._title(slot), link=self.view.link_of(slot.ops), ops=ops):
            place = (x - half, y - height / 2, 2 * half, height)
            canvas.rectangle(*place, kind, rx=rounding, stroke=edge)
            for i, line in enumerate(text):
                weight = "middle bold" if i == bold else "middle"
                canvas.text(x, top + i * _LINE, line, weight, px=10)

    def _draw_edge(self, canvas: Canvas, producer: Slot, reader: Slot) -> None:
        (x, top), (end, bottom) = self.at[producer], self.at[reader]
        top += self.heights[producer] / 2
        bottom -= self.heights[reader] / 2
        # Control points at half the way make the curve leave and arrive upright.
        middle = (top + bottom) / 2
        curve = f"C{x:.1f} {middle:.1f} {end:.1f} {middle:.1f} {end:.1f} {bottom:.1f}"
        canvas.path(f"M{x:.1f} {top:.1f}{curve}", "wire")
        if reader.kind != "through":
            canvas.path(f"M{end:.1f} {bottom:.1f}l-3-6h6z", "head")
