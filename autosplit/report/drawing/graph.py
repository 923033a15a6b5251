"""The fused graph from left to right, coloured by stage, with the live tensors on every cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autosplit.graph import FusedGraph
from autosplit.report.drawing.canvas import FAINT, INK, Canvas, Form, colour, label, lines
from autosplit.report.drawing.layout import arrange
from autosplit.report.drawing.paths import Paths, Slot
from autosplit.report.drawing.rows import IO, PILL, SIDE, Row, arrange_rows, fitted
from autosplit.units import counted, milliseconds, size

_HEAD, _ROW_HEAD, _FOOT, _LINE, _GAP = 52, 34, 74, 14, 14
_BELOW = 48  # from the lowest box of a row to the next row: room for the texts of its cuts
_ASIDE = 34  # how far the name of a stage may stand out on either side; a cut is farther away
_CHARACTER = 6.2  # the width of a character in a box
_WIRE = "#555555"
_LEGEND = (
    "box: fused op, border in the colour of its stage; round: live tensor with its size, "
    "sent once over the cut; dashed: cut; grey border: input or output of the model"
)


def split_graph(
    graph: FusedGraph,
    stages: Sequence[Sequence[int]],
    *,
    names: Sequence[str] = (),
    op_ms: Sequence[float] = (),
    title: str = "",
    form: Form = "png",
    width: int = 1400,
) -> bytes:
    """The graph cut into ``stages`` (lists of op indices): boxes for ops or runs of them.

    ``names`` label the stages. ``op_ms`` are times of the ops in ms, in the order of ``graph.ops``;
    boxes show their sums. ``width`` is in pixels; many stages go on in further rows.

    Raises:
        SplitError: ``stages`` are no split of the graph.
        MachineError: matplotlib is missing.
    """
    return _Picture(graph, stages, names, op_ms, width).draw(title).render(form)


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
    def __init__(
        self,
        graph: FusedGraph,
        stages: Sequence[Sequence[int]],
        names: Sequence[str],
        op_ms: Sequence[float],
        width: int,
    ) -> None:
        self.graph, self.stages, self.names = graph, stages, names
        self.op_ms = op_ms if len(op_ms) == len(graph.ops) else ()
        self.paths = fitted(graph, stages, width)
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
        canvas.text(SIDE, 18, label(title, 120), px=15, weight="bold")
        count = counted(len(self.graph.ops), "fused op")
        note = "in the order data flows; a box with several ops stands for all of them"
        canvas.text(SIDE, 38, f"{count}, {note}", px=11)
        for row in self.rows:
            self._draw_stages(canvas, row)
            self._draw_cuts(canvas, row)
            for producer, reader in row.edges:
                _draw_edge(canvas, row, producer, reader)
            for slot in row.at:
                self._draw_slot(canvas, row, slot)
        canvas.text(SIDE, bottom - 14, _LEGEND, px=11)
        return canvas

    def _slot_text(self, slot: Slot) -> list[str]:
        tensors = self.graph.tensors
        if slot.kind == "op":
            return self._op_text(slot.ops)
        if slot.kind == "tensor":
            total = size(sum(tensors[t].bytes for t in slot.tensors))
            # The smallest tensors of a crowded cut share a box.
            if len(slot.tensors) > 1:
                return [f"{len(slot.tensors)} tensors", total]
            return [*lines(slot.tensors[0], 15), total]
        if slot.kind in ("input", "output"):
            return [*lines(slot.tensors[0], 12), size(tensors[slot.tensors[0]].bytes)]
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

    def _draw_stages(self, canvas: Canvas, row: _PlacedRow) -> None:
        for stage, ops in enumerate(self.stages):
            span = row.stage_span(stage)
            if span is None:
                continue
            left, right = span
            height = row.bottom - row.top + 12
            fill = {"facecolor": colour(stage), "alpha": 0.10}
            canvas.rectangle(left, row.top, right - left, height, **fill)
            limit = int((right - left + 2 * _ASIDE) / 7)
            name, count = f"stage {stage}", counted(len(ops), "op")
            if stage < len(self.names):
                name += f", {self.names[stage]}"
            if self.op_ms:
                count += f", {milliseconds(sum(self.op_ms[i] for i in ops))}"
            middle = (left + right) / 2
            style = {"ha": "center"}
            canvas.text(middle, row.top + 10, label(name, limit), px=12, weight="bold", **style)
            canvas.text(middle, row.top + 25, label(count, limit), px=11, **style)

    def _draw_cuts(self, canvas: Canvas, row: _PlacedRow) -> None:
        """The cuts of a row with their sizes; the text of its first one stands a row above."""
        for number, column in enumerate(self.paths.cut_columns, 1):
            if column not in row.row.xs:
                continue
            x = row.row.xs[column]
            dashed = {"linestyle": (0, (5, 3)), "linewidth": 1.6, "zorder": 1.5}
            canvas.line((x, x), (row.top, row.bottom + 14), **dashed)
            tensors = self.paths.live[number - 1]
            total = size(sum(self.graph.tensors[t].bytes for t in tensors))
            text = f"cut {number}: {total} in {counted(len(tensors), 'tensor')}"
            style = {"weight": "bold", "ha": "center"}
            if column in self.seams and column == row.row.columns[0]:
                # A cut between two rows is drawn at both; its size is written once.
                text, x, style["ha"] = f"cut {number}, from above", x - PILL / 2, "left"
            elif column in self.seams:
                x, style["ha"] = x + PILL / 2, "right"
                canvas.text(x, row.bottom + 37, "continued below", px=10, ha="right")
            canvas.text(x, row.bottom + 23, text, px=11, **style)

    def _draw_slot(self, canvas: Canvas, row: _PlacedRow, slot: Slot) -> None:
        from matplotlib.patches import FancyBboxPatch

        text, (x, y) = self.text[slot], row.at[slot]
        half, height = row.half_width(slot), row.heights[slot]
        if not text:
            canvas.line((x - half, x + half), (y, y), color=_WIRE, linewidth=1.0, zorder=2)
            return
        edge, rounding, width = FAINT, 8.0, 1.0
        if slot.kind == "op":
            edge, rounding, width = colour(slot.stage), 3.0, 2.0
        elif slot.kind == "tensor":
            edge, rounding = INK, height / 2
        shape = f"round,pad=0,rounding_size={rounding}"
        corner = (x - half, y - height / 2)
        box = FancyBboxPatch(corner, 2 * half, height, boxstyle=shape, zorder=3)
        box.set(facecolor="white", edgecolor=edge, linewidth=width)
        canvas.axes.add_patch(box)
        # The count of several ops and the size of a tensor are bold.
        bold = None
        if slot.kind == "tensor":
            bold = len(text) - 1
        elif len(slot.ops) > 3:
            bold = 0
        # The lines stand in the middle of their box.
        top = y - (len(text) - 1) * _LINE / 2
        for i, line in enumerate(text):
            weight = "bold" if i == bold else "normal"
            canvas.text(x, top + i * _LINE, line, px=10, ha="center", zorder=4, weight=weight)


def _draw_edge(canvas: Canvas, row: _PlacedRow, producer: Slot, reader: Slot) -> None:
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    start = (row.at[producer][0] + row.half_width(producer), row.at[producer][1])
    end = (row.at[reader][0] - row.half_width(reader), row.at[reader][1])
    middle = (start[0] + end[0]) / 2
    # Control points at half the way make the curve leave and arrive level.
    bends = [(middle, start[1]), (middle, end[1])]
    route = Path([start, *bends, end], [Path.MOVETO, *[Path.CURVE4] * 3])
    is_passing = reader.kind == "through"
    style: dict[str, Any] = {"mutation_scale": 7, "linewidth": 1.0, "color": _WIRE, "zorder": 2}
    arrow = FancyArrowPatch(path=route, arrowstyle="-" if is_passing else "-|>", **style)
    arrow.set_fill(not is_passing)
    canvas.axes.add_patch(arrow)
