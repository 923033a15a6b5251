"""The fused graph from top to bottom: one row per op, coloured by stage, and the cuts in between.

Tensors are lines in lanes beside the rows. A bar shows the time of an op, darker for slower ops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from autosplit.cuts.stages import cuts_of, live
from autosplit.graph import FusedGraph, op_title
from autosplit.report.documents.inspection import shape_text
from autosplit.report.drawing.canvas import PALETTE, Canvas, colour, label
from autosplit.report.drawing.lanes import Way, lanes
from autosplit.units import counted, milliseconds, size

_ROW, _SIDE, _LANE, _NODE = 22, 8, 14, 5
_MAX_LANES = 240  # pixels of all lanes
_TIME, _BAR = 62, 60  # pixels at the right for the text and the bar of a time
_MAX_TENSORS = 6  # named on a cut: the largest ones
_MAX_NAMES = 12  # of source nodes in the tooltip of an op
_HEAT = PALETTE[5]
_ABOUT = (
    "The fused graph, coloured by stage; times as profiled; on the cuts the live tensors. An op "
    "tells its shapes and source nodes when it is pointed at or clicked."
)


@dataclass(frozen=True)
class _Row:
    """A line of the picture.

    ``about`` is the tooltip. ``aside`` are the texts of a shape and a size. ``op`` is the index of
    an op.
    """

    kind: Literal["stage", "op", "port", "cut", "tensor"]
    text: str
    about: str = ""
    stage: int = 0
    op: int = -1
    reads: Sequence[str] = ()
    makes: Sequence[str] = ()
    aside: tuple[str, str] = ("", "")


@dataclass(frozen=True)
class SplitGraph:
    """What to draw: a graph, its ``stages`` (lists of op indices), and what is known of them.

    ``names`` label the stages. ``op_ms`` are times of the ops in ms, in the order of ``graph.ops``.
    """

    graph: FusedGraph
    stages: Sequence[Sequence[int]]
    names: Sequence[str] = ()
    op_ms: Sequence[float] = ()

    def draw(self) -> Canvas:
        """Draw the picture. Raises SplitError if ``stages`` are not a split of the graph."""
        return _drawn(list(self._rows()), self.op_ms)

    def _rows(self) -> Iterator[_Row]:
        graph, cuts = self.graph, cuts_of(self.graph, self.stages)
        for name in graph.inputs:
            yield self._port("input", name, makes=[name])
        for stage, ops in enumerate(self.stages):
            yield self._heading(stage)
            yield from map(partial(self._op, stage), sorted(ops))
            if stage < len(cuts):
                yield from self._cut(stage, live(graph, cuts[stage]))
        for name in graph.outputs:
            yield self._port("output", name, reads=[name])

    def _heading(self, stage: int) -> _Row:
        ops, name = self.stages[stage], [*self.names[stage : stage + 1]]
        times = [milliseconds(sum(self.op_ms[i] for i in ops))] if self.op_ms else []
        text = ", ".join([counted(len(ops), "op"), *times, *name])
        return _Row("stage", f"stage {stage}: {text}", stage=stage)

    def _op(self, stage: int, index: int) -> _Row:
        op, tensors = self.graph.ops[index], self.graph.tensors
        about = [op_title(op), *([milliseconds(self.op_ms[index])] if self.op_ms else [])]
        about = [", ".join(about), ", ".join([f"stage {stage}", *self.names[stage : stage + 1]])]
        about += [f"reads {self._tensor(t)}" for t in dict.fromkeys(op.inputs)]
        about += [f"makes {self._tensor(t)}" for t in op.outputs]
        about.append(f"kernel: {op.kernel}")
        if op.sources:
            about.append(f"source nodes: {', '.join(op.sources[:_MAX_NAMES])}")
        shapes = " ".join(shape_text(tensors[t].shape) for t in op.outputs)
        aside = shapes, size(sum(tensors[t].bytes for t in op.outputs))
        text = "\n".join(about)
        return _Row("op", op_title(op), text, stage, index, op.inputs, op.outputs, aside)

    def _port(
        self, kind: str, name: str, reads: Sequence[str] = (), makes: Sequence[str] = ()
    ) -> _Row:
        tensor, text = self.graph.tensors[name], f"{kind} {name}"
        if any(name in (state.input, state.tensor) for state in self.graph.states):
            text += " (state of a stream)"
        aside = shape_text(tensor.shape), size(tensor.bytes)
        about = f"{kind} {self._tensor(name)}"
        return _Row("port", text, about, reads=reads, makes=makes, aside=aside)

    def _cut(self, stage: int, names: Sequence[str]) -> Iterator[_Row]:
        tensors = sorted((self.graph.tensors[t] for t in names), key=lambda t: -t.bytes)
        total = size(sum(t.bytes for t in tensors))
        text = f"cut {stage + 1}: {total} in {counted(len(tensors), 'tensor')}"
        yield _Row("cut", text)
        for tensor in tensors[:_MAX_TENSORS]:
            aside, text = (shape_text(tensor.shape), size(tensor.bytes)), f"sends {tensor.name}"
            yield _Row("tensor", text, f"sends {self._tensor(tensor.name)}", aside=aside)
        if others := tensors[_MAX_TENSORS:]:
            yield _Row("tensor", f"and {counted(len(others), 'smaller tensor')}")

    def _tensor(self, name: str) -> str:
        tensor = self.graph.tensors[name]
        return f"{name}: {shape_text(tensor.shape)} {tensor.dtype}, {size(tensor.bytes)}"


def _drawn(rows: Sequence[_Row], op_ms: Sequence[float]) -> Canvas:
    nodes, ways = lanes([(row.reads, row.makes) for row in rows])
    most = max([way.lane for way in ways], default=0) + 1
    step = min(_LANE, _MAX_LANES / most)
    xs = [_SIDE + _NODE + lane * step for lane in range(most + 1)]
    canvas = Canvas(640, (len(rows) + 1) * _ROW, _ABOUT, fluid=True)
    for number, row in enumerate(rows):
        if row.kind in ("stage", "op"):
            canvas.rectangle(0, (number + 0.5) * _ROW, "100%", _ROW, **_tint(row.stage))
    for way in ways:
        canvas.path(_path(way, nodes, xs), "wire")
    left, slowest = xs[most] + 4, max([*op_ms, 1e-9])
    for number, row in enumerate(rows):
        ms = op_ms[row.op] if row.kind == "op" and op_ms else None
        _draw_row(canvas, row, (number + 1) * _ROW, left, xs[nodes[number]], ms, slowest)
    return canvas


def _draw_row(
    canvas: Canvas, row: _Row, y: float, left: float, x: float, ms: float | None, slowest: float
) -> None:
    if row.kind == "cut":
        top = y - _ROW / 2
        canvas.line((0, 4000), (top, top), "line", stroke_dasharray="8 5", stroke_width=2)
    if not row.about:
        canvas.text(left, y, label(row.text, 80), "bold" if row.kind != "tensor" else "")
        return
    with canvas.group(row.about, ops=f"{1 << row.op:x}" if row.kind == "op" else ""):
        canvas.rectangle(0, y - _ROW / 2, "100%", _ROW, pointer_events="all")
        if row.kind in ("op", "port"):
            fill = {"fill": colour(row.stage)} if row.kind == "op" else {}
            circle = f"M{x - _NODE:.1f} {y:.1f}a{_NODE} {_NODE} 0 1 0 {2 * _NODE} 0"
            circle += f"a{_NODE} {_NODE} 0 1 0 -{2 * _NODE} 0z"
            canvas.path(circle, "line" if fill else "line paper", **fill)
        canvas.text(left, y, label(row.text, 44))
        with canvas.at_right():
            end = -_SIDE - (_TIME + _BAR if ms is not None else 0.0)
            canvas.text(end, y, row.aside[1], "end aside roomy", px=10)
            canvas.text(end - 64, y, label(row.aside[0], 24), "end aside roomy", px=10)
            if ms is not None:
                _draw_time(canvas, row.stage, y, ms, ms / slowest)


def _draw_time(canvas: Canvas, stage: int, y: float, ms: float, share: float) -> None:
    # On a narrow screen the time covers the end of a long name.
    width = _SIDE + _TIME + _BAR
    canvas.rectangle(-width, y - _ROW / 2, width, _ROW, "paper")
    canvas.rectangle(-width, y - _ROW / 2, width, _ROW, **_tint(stage))
    bar = (10.0 - width, y - 5, (_BAR - 4) * share, 10)
    canvas.rectangle(*bar, fill=_HEAT, fill_opacity=round(0.25 + 0.75 * share, 2))
    canvas.text(-_SIDE, y, milliseconds(ms), "end", px=10)


def _tint(stage: int) -> dict[str, Any]:
    return {"fill": colour(stage), "fill_opacity": 0.1}


def _path(way: Way, nodes: Sequence[int], xs: Sequence[float]) -> str:
    """From the node that makes a tensor, down its lane, and aside to each node that reads it."""
    start, last = (xs[nodes[way.start]], way.start), way.readers[-1]
    lane = [(xs[way.lane], row) for row in (way.start + 1, last - 1)]
    inner = lane if last > way.start + 1 else []
    path = _curve([start, *inner, (xs[nodes[last]], last)])
    for reader in way.readers[:-1]:
        before = (xs[way.lane], reader - 1) if reader > way.start + 1 else start
        path += _curve([before, (xs[nodes[reader]], reader)])
    return path


def _curve(points: Sequence[tuple[float, int]]) -> str:
    (x, row), *others = points
    y = (row + 1) * _ROW
    path = f"M{x:.1f} {y}"
    for end, row in others:
        bottom = (row + 1) * _ROW
        middle = (y + bottom) / 2
        curve = f"C{x:.1f} {middle:.0f} {end:.1f} {middle:.0f} {end:.1f} {bottom}"
        path += f"V{bottom}" if x == end else curve
        x, y = end, bottom
    return path
