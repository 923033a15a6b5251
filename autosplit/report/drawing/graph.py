"""The fused graph from left to right, coloured by stage, with the live tensors on every cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from autosplit.graph import FusedGraph
from autosplit.report.drawing.layout import arrange
from autosplit.report.drawing.paths import Paths, Slot
from autosplit.report.drawing.rows import IO, PILL, SIDE, Row, arrange_rows, fitted
from autosplit.report.drawing.style import (
    FAINT,
    INK,
    Form,
    canvas,
    colour,
    label,
    lines,
    render,
    write,
)
from autosplit.units import counted, milliseconds, size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HEAD, _ROW_HEAD, _FOOT, _LINE, _GAP = 52, 34, 74, 14, 14
_BELOW = 48  # from the lowest box of a row to the next row: room for what its cuts say
_ASIDE = 34  # how far what a stage is called may stand out on either side; a cut is farther away
_WIRE = "#555555"


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
    """The graph cut into ``stages`` (lists of op indices), boxes for ops or for runs of them, cuts as dashed lines.

    ``names`` label the stages, ``op_ms`` are times of the ops in ms, in the order of ``graph.ops``, written as sums
    into the boxes. ``width`` is in pixels; many stages go on in further rows. Raises SplitError where ``stages`` are no
    split of the graph, MachineError where matplotlib is missing.
    """
    op_ms = op_ms if len(op_ms) == len(graph.ops) else ()
    paths = fitted(graph, stages, width)
    rows, box, width = arrange_rows(paths, width)
    seams = frozenset(c for row in rows[1:] for c in row.columns[:1])
    text = {
        slot: _text(graph, slot, box, op_ms, seams) for column in paths.columns for slot in column
    }
    placed: list[_Placed] = []
    for columns in rows:
        top = placed[-1].bottom + _BELOW if placed else _HEAD
        placed.append(_Placed(columns, paths, text, box, top))
    figure, axes = canvas(width, int(placed[-1].bottom) + _FOOT)
    _title(axes, graph, stages, title)
    for row in placed:
        _stage_bands(axes, row, stages, names, op_ms)
        _cut_lines(axes, graph, row, seams)
        for a, b in row.edges:
            _edge(axes, row.at[a], row.at[b], row.half(a), row.half(b), b)
        for slot, (x, y) in row.at.items():
            _slot(axes, slot, x, y, row.half(slot), row.heights[slot], text[slot])
    _legend(axes, placed[-1].bottom + _FOOT - 14)
    return render(figure, form)


class _Placed:
    """A row with the place of every slot in it; its stages' names stand at ``top``, its boxes end at ``bottom``."""

    def __init__(
        self, row: Row, paths: Paths, text: Mapping[Slot, Sequence[str]], box: float, top: float
    ) -> None:
        self.row, self.paths, self.box, self.top = row, paths, box, top
        columns = [paths.columns[c] for c in row.columns]
        first, last = row.columns[0], row.columns[-1]
        self.edges = [(a, b) for a, b in paths.edges if first <= a.column < last]
        self.heights = {slot: _height(slot, text[slot]) for column in columns for slot in column}
        centres = arrange(columns, self.edges, self.heights, _GAP)
        self.at = {slot: (row.xs[slot.column], top + _ROW_HEAD + y) for slot, y in centres.items()}
        self.bottom = max(
            (y + self.heights[s] / 2 for s, (_, y) in self.at.items()), default=top + _ROW_HEAD
        )

    def half(self, slot: Slot) -> float:
        """Half the width of what stands in the slot."""
        return {"op": self.box, "cut": PILL, "io": IO}[self.paths.kind(slot.column)] / 2


def _text(
    graph: FusedGraph, slot: Slot, box: float, op_ms: Sequence[float], seams: frozenset[int]
) -> list[str]:
    if slot.kind == "op":
        return _op_text(graph, slot.ops, int((box - 8) / 6.2), op_ms)
    if slot.kind == "tensor":
        total = size(sum(graph.tensors[t].bytes for t in slot.tensors))
        name = (
            lines(slot.tensors[0], 15)
            if len(slot.tensors) == 1
            else [f"{len(slot.tensors)} tensors"]
        )
        return [*name, total]
    if slot.kind in ("input", "output"):
        return [*lines(slot.tensors[0], 12), size(graph.tensors[slot.tensors[0]].bytes)]
    return _passing(graph, slot) if slot.column in seams else []


def _passing(graph: FusedGraph, slot: Slot) -> list[str]:
    """What passes a cut without being live on it, told where a row ends: an input read later, an output made before."""
    anchor = slot.anchor
    if anchor is None:
        return []
    made = anchor.tensors or tuple(
        t for i in anchor.ops for t in graph.ops[i].outputs if t in graph.outputs
    )
    what = "input" if anchor.kind == "input" else "output"
    return [what, *lines(made[0], 15)] if len(made) == 1 else [f"{len(made)} {what}s"]


def _op_text(
    graph: FusedGraph, ops: Sequence[int], limit: int, op_ms: Sequence[float]
) -> list[str]:
    found = [graph.ops[i].name for i in ops]
    if len(found) == 1:
        text = lines(found[0], limit, 3)
    elif len(found) <= 3:
        text = [label(name, limit) for name in found]
    else:
        text = [counted(len(found), "op"), *lines(found[0], limit), "…", *lines(found[-1], limit)]
    if op_ms:
        text.append(milliseconds(sum(op_ms[i] for i in ops)))
    return text


def _height(slot: Slot, text: Sequence[str]) -> float:
    return len(text) * _LINE + 8 if text else 8.0


def _title(axes: Axes, graph: FusedGraph, stages: Sequence[Sequence[int]], title: str) -> None:
    write(
        axes,
        SIDE,
        18,
        label(title or f"{graph.name}: {counted(len(stages), 'stage')}", 120),
        px=15,
        weight="bold",
    )
    count = f"{counted(len(graph.ops), 'fused op')}, in the order data flows; a box with several ops stands for all of them"
    write(axes, SIDE, 38, count, px=11, color=INK)


def _stage_bands(
    axes: Axes,
    row: _Placed,
    stages: Sequence[Sequence[int]],
    names: Sequence[str],
    op_ms: Sequence[float],
) -> None:
    from matplotlib.patches import Rectangle

    for stage, ops in enumerate(stages):
        own = [x for column, x in row.row.xs.items() if row.paths.stage(column) == stage]
        if not own:
            continue
        left, right = min(own) - row.box / 2 - 9, max(own) + row.box / 2 + 9
        area = Rectangle(
            (left, row.top),
            right - left,
            row.bottom - row.top + 12,
            facecolor=colour(stage),
            edgecolor="none",
        )
        area.set_alpha(0.10)
        axes.add_patch(area)
        limit = int((right - left + 2 * _ASIDE) / 7)
        name = f"stage {stage}" + (f", {names[stage]}" if stage < len(names) else "")
        time = f", {milliseconds(sum(op_ms[i] for i in ops))}" if op_ms else ""
        style = {"ha": "center", "color": INK}
        write(
            axes,
            (left + right) / 2,
            row.top + 10,
            label(name, limit),
            px=12,
            weight="bold",
            **style,
        )
        write(
            axes,
            (left + right) / 2,
            row.top + 25,
            label(counted(len(ops), "op") + time, limit),
            px=11,
            **style,
        )


def _cut_lines(axes: Axes, graph: FusedGraph, row: _Placed, seams: frozenset[int]) -> None:
    """The cuts of a row with their sizes; the one it begins with was told where the row before ended."""
    for cut, column in enumerate(row.paths.cut_columns):
        if column not in row.row.xs:
            continue
        x, tensors = row.row.xs[column], row.paths.live[cut]
        axes.plot(
            (x, x),
            (row.top, row.bottom + 14),
            linestyle=(0, (5, 3)),
            color=INK,
            linewidth=1.6,
            zorder=1.5,
        )
        total = size(sum(graph.tensors[t].bytes for t in tensors))
        text, side, place = (
            f"cut {cut + 1}: {total} in {counted(len(tensors), 'tensor')}",
            "center",
            x,
        )
        if column in seams and column == row.row.columns[0]:
            text, side, place = f"cut {cut + 1}, from above", "left", x - PILL / 2
        elif column in seams:
            side, place = "right", x + PILL / 2
            write(axes, place, row.bottom + 37, "goes on below", px=10, ha=side)
        write(axes, place, row.bottom + 23, text, px=11, weight="bold", ha=side)


def _edge(
    axes: Axes,
    a: tuple[float, float],
    b: tuple[float, float],
    left: float,
    right: float,
    target: Slot,
) -> None:
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    start, end = (a[0] + left, a[1]), (b[0] - right, b[1])
    middle = (start[0] + end[0]) / 2
    route = Path(
        [start, (middle, start[1]), (middle, end[1]), end], [Path.MOVETO, *[Path.CURVE4] * 3]
    )
    style = "-" if target.kind == "through" else "-|>"
    arrow = FancyArrowPatch(
        path=route, arrowstyle=style, mutation_scale=7, linewidth=1.0, color=_WIRE, zorder=2
    )
    arrow.set_fill(target.kind != "through")
    axes.add_patch(arrow)


def _slot(
    axes: Axes, slot: Slot, x: float, y: float, half: float, height: float, text: Sequence[str]
) -> None:
    from matplotlib.patches import FancyBboxPatch

    if not text:
        axes.plot((x - half, x + half), (y, y), color=_WIRE, linewidth=1.0, zorder=2)
        return
    rounding = {"op": 3.0, "tensor": height / 2}.get(slot.kind, 8.0)
    edge = colour(slot.stage) if slot.kind == "op" else INK if slot.kind == "tensor" else FAINT
    patch = FancyBboxPatch(
        (x - half, y - height / 2), 2 * half, height, boxstyle=f"round,pad=0,rounding_size={rounding}",
        facecolor="white", edgecolor=edge, linewidth=2.0 if slot.kind == "op" else 1.0, zorder=3,
    )  # fmt: skip
    axes.add_patch(patch)
    several = len(slot.ops) > 3
    for i, line in enumerate(text):
        bold = (i == 0 and several) or (slot.kind == "tensor" and i == len(text) - 1)
        top = y - (len(text) - 1) * _LINE / 2
        write(
            axes,
            x,
            top + i * _LINE,
            line,
            px=10,
            ha="center",
            zorder=4,
            weight="bold" if bold else "normal",
        )


def _legend(axes: Axes, y: float) -> None:
    text = (
        "box: fused op, border in the colour of its stage; round: live tensor with its size, "
        "sent once over the cut; dashed: cut; grey border: input or output of the model"
    )
    write(axes, SIDE, y, text, px=11)
