"""The fused graph from left to right, coloured by stage, with the live tensors on every cut."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from autosplit.cuts import bitset
from autosplit.graph import FusedGraph, build
from autosplit.report.documents.inspection import shape_text
from autosplit.report.drawing.canvas import Canvas, colour, label, lines
from autosplit.report.drawing.layout import arrange
from autosplit.report.drawing.paths import Paths, Slot, trace
from autosplit.report.drawing.rows import IO, PILL, SIDE, Row, arrange_rows, fitted
from autosplit.units import counted, milliseconds, size

_HEAD, _ROW_HEAD, _FOOT, _LINE, _GAP = 52, 34, 74, 14, 14
_BELOW = 48  # from the lowest box of a row to the next row: room for the texts of its cuts
_ASIDE = 34  # how far the name of a stage may stand out on either side; a cut is farther away
_CHARACTER = 6.2  # the width of a character in a box
_MAX_NAMES = 12  # of tensors or source nodes that a box names when pointed at
_LEGEND = (
    "box: fused op, border in the colour of its stage; round: live tensor with its size, "
    "sent once over the cut; dashed: cut; grey border: input or output of the model"
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

    def draw(self, title: str = "", width: int = 1400) -> Canvas:
        """The picture, ``width`` pixels wide; many stages go on in further rows.

        Raises SplitError if ``stages`` are no split of the graph.
        """
        return _Picture(self, fitted(self.graph, self.stages, width), width).draw(title)

    def parts(self, width: int = 1400) -> Iterator[tuple[str, str, Canvas]]:
        """For each box with several ops its link, its title, and a picture with a box for each."""
        paths = fitted(self.graph, self.stages, width)
        for column in paths.columns:
            for slot in column:
                if len(slot.ops) > 1:
                    part = self._part(slot)
                    # as many columns and rows as there are ops, so that no two share a box
                    inner = trace(part.graph, part.stages, len(slot.ops), len(slot.ops))
                    title = f"{part.box_name(slot.stage)}: {counted(len(slot.ops), 'fused op')}"
                    picture = _Picture(part, inner, width // 2).draw(title)
                    yield self.link_of(slot.ops), title, picture

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


class _PlacedRow:
    """A row with the place of every slot in it.

    The names of its stages stand at ``top``; its boxes end at ``bottom``.
    """

    def __init__(
        self, row: Row, paths: Paths, text: Mapping[Slot, Sequence[str]], box: float, top: float
    ) -> None:
        self.row, self.paths, self.box, self.top = row, paths, box, top
        columns = [paths.columns[c] for c in row.columns]
        first, last = row.columns[0], row.columns[-1]
        self.edges = [(a, b) for a, b in paths.edges if first <= a.column < last]
        self.heights: dict[Slot, float] = {}
        for column in columns:
            self.heights |= {s: len(text[s]) * _LINE + 8.0 if text[s] else 8.0 for s in column}
        # Each row is arranged by itself: its first column repeats the cut that ends the row above.
        centres = arrange(columns, self.edges, self.heights, _GAP)
        self.at = {slot: (row.xs[slot.column], top + _ROW_HEAD + y) for slot, y in centres.items()}
        lower_edges = [y + self.heights[slot] / 2 for slot, (_, y) in self.at.items()]
        self.bottom = max(lower_edges, default=top + _ROW_HEAD)

    def half_width(self, slot: Slot) -> float:
        """Half the width of a slot's box."""
        return {"op": self.box, "cut": PILL, "io": IO}[self.paths.kind(slot.column)] / 2

    def stage_span(self, stage: int) -> tuple[float, float] | None:
        """The left and the right end of a stage's boxes; None if it is not in this row."""
        columns = [c for c in self.row.columns if self.paths.stage(c) == stage]
        if not columns:
            return None
        # The shade of a stage stands out a little on both sides of its boxes.
        aside = self.box / 2 + 9
        return self.row.xs[columns[0]] - aside, self.row.xs[columns[-1]] + aside


class _Picture:
    def __init__(self, view: SplitGraph, paths: Paths, width: int) -> None:
        self.view, self.graph, self.stages, self.paths = view, view.graph, view.stages, paths
        self.op_ms = view.op_ms if len(view.op_ms) == len(view.graph.ops) else ()
        self.states = {t for state in self.graph.states for t in (state.input, state.tensor)}
        rows, self.box, self.width = arrange_rows(self.paths, width)
        # The cuts at which a row ends and the next begins.
        self.seams = frozenset(row.columns[0] for row in rows[1:])
        self.text: dict[Slot, list[str]] = {}
        for column in self.paths.columns:
            self.text |= {slot: self._slot_text(slot) for slot in column}
        self.rows: list[_PlacedRow] = []
        for row in rows:
            top = self.rows[-1].bottom + _BELOW if self.rows else _HEAD
            self.rows.append(_PlacedRow(row, self.paths, self.text, self.box, top))

    def draw(self, title: str) -> Canvas:
        """The picture with its title and legend."""
        bottom = self.rows[-1].bottom + _FOOT
        canvas = Canvas(self.width, int(self.rows[-1].bottom) + _FOOT)
        title = title or f"{self.graph.name}: {counted(len(self.stages), 'stage')}"
        canvas.text(SIDE, 18, label(title, self.width // 10), "bold", px=15)
        count = counted(len(self.graph.ops), "fused op")
        note = "in the order data flows; a box with several ops stands for all of them"
        canvas.text(SIDE, 38, f"{count}, {note}")
        for row in self.rows:
            self._draw_stages(canvas, row)
            self._draw_cuts(canvas, row)
            for producer, reader in row.edges:
                _draw_edge(canvas, row, producer, reader)
            for slot in row.at:
                self._draw_slot(canvas, row, slot)
        canvas.text(SIDE, bottom - 14, _LEGEND)
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
            return [*lines(first, 15), total]
        if slot.kind in ("input", "output"):
            (name, *_), state = slot.tensors, ["state"] if slot.tensors[0] in self.states else []
            return [*state, *lines(name, 12), size(tensors[name].bytes)]
        return self._passing_text(slot) if slot.column in self.seams else []

    def _passing_text(self, slot: Slot) -> list[str]:
        """Names, at the end of a row, an input or output that passes a cut without being live."""
        anchor = slot.anchor
        if anchor is None:
            return []
        passing = list(anchor.tensors)
        if not passing:
            for i in anchor.ops:
                passing += [t for t in self.graph.ops[i].outputs if t in self.graph.outputs]
        kind = "input" if anchor.kind == "input" else "output"
        return [kind, *lines(passing[0], 15)] if len(passing) == 1 else [f"{len(passing)} {kind}s"]

    def _op_text(self, ops: Sequence[int]) -> list[str]:
        # A name is broken where its box ends, since SVG does not wrap text.
        limit = int((self.box - 8) / _CHARACTER)
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

    def _draw_stages(self, canvas: Canvas, row: _PlacedRow) -> None:
        for stage, ops in enumerate(self.stages):
            span = row.stage_span(stage)
            if span is None:
                continue
            left, right = span
            number = self.view.stage + stage
            height = row.bottom - row.top + 12
            place = (left, row.top, right - left, height)
            canvas.rectangle(*place, fill=colour(number), fill_opacity=0.1)
            limit = int((right - left + 2 * _ASIDE) / 7)
            name, count = self.view.box_name(number), counted(len(ops), "op") + self._took(ops)
            middle = (left + right) / 2
            canvas.text(middle, row.top + 10, label(name, limit), "middle bold", px=12)
            canvas.text(middle, row.top + 25, label(count, limit), "middle")

    def _draw_cuts(self, canvas: Canvas, row: _PlacedRow) -> None:
        """The cuts of a row with their sizes; the text of its first one stands a row above."""
        for number, column in enumerate(self.paths.cut_columns, 1):
            if column not in row.row.xs:
                continue
            x = row.row.xs[column]
            ends = (row.top, row.bottom + 14)
            canvas.line((x, x), ends, "line", stroke_dasharray="8 5", stroke_width=2)
            tensors = self.paths.live[number - 1]
            total = size(sum(self.graph.tensors[t].bytes for t in tensors))
            text, side = f"cut {number}: {total} in {counted(len(tensors), 'tensor')}", "middle"
            if column in self.seams and column == row.row.columns[0]:
                # A cut between two rows is drawn at both; its size is written once.
                text, x, side = f"cut {number}, from above", x - PILL / 2, ""
            elif column in self.seams:
                x, side = x + PILL / 2, "end"
                canvas.text(x, row.bottom + 37, "continued below", side, px=10)
            canvas.text(x, row.bottom + 23, text, f"bold {side}".rstrip())

    def _draw_slot(self, canvas: Canvas, row: _PlacedRow, slot: Slot) -> None:
        text, (x, y) = self.text[slot], row.at[slot]
        half, height = row.half_width(slot), row.heights[slot]
        if not text:
            canvas.line((x - half, x + half), (y, y), "wire")
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


def _draw_edge(canvas: Canvas, row: _PlacedRow, producer: Slot, reader: Slot) -> None:
    left, y = row.at[producer]
    right, end = row.at[reader]
    left, right = left + row.half_width(producer), right - row.half_width(reader)
    middle = (left + right) / 2
    # Control points at half the way make the curve leave and arrive level.
    curve = f"C{middle:.1f} {y:.1f} {middle:.1f} {end:.1f} {right:.1f} {end:.1f}"
    canvas.path(f"M{left:.1f} {y:.1f}{curve}", "wire")
    if reader.kind != "through":
        canvas.path(f"M{right:.1f} {end:.1f}l-6-3v6z", "head")
