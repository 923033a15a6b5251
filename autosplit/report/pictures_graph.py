"""The fused graph from left to right, coloured by stage, with the live tensors on every cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from autosplit.graph import FusedGraph
from autosplit.report.pictures_layout import arrange
from autosplit.report.pictures_paths import Paths, Slot, trace
from autosplit.report.pictures_style import (
    FAINT,
    INK,
    Form,
    canvas,
    colour,
    label,
    lines,
    milliseconds,
    render,
    size,
    write,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIDE, _HEAD, _FOOT, _LINE, _GAP = 12, 86, 74, 14, 14
_IO, _PILL, _SPACE = 84, 104, 24  # widths of inputs and outputs, of tensors on a cut, between columns
_WIRE = "#555555"
_LEAST = 86  # a box narrower than this cannot hold a name; the picture grows instead


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
    into the boxes. ``width`` is in pixels; many stages make the picture wider rather than unreadable. Raises SplitError
    where ``stages`` are no split of the graph, MachineError where matplotlib is missing.
    """
    op_ms = op_ms if len(op_ms) == len(graph.ops) else ()
    paths = trace(graph, stages, columns=_room(len(stages), width))
    xs, box, width = _columns(paths, width)
    text = {slot: _text(graph, slot, box, op_ms) for column in paths.columns for slot in column}
    heights = {slot: _height(slot, text[slot]) for slot in text}
    centres = arrange(paths.columns, paths.edges, heights, _GAP)
    bottom = _HEAD + max((y + heights[s] / 2 for s, y in centres.items()), default=0.0)
    figure, axes = canvas(width, int(bottom) + _FOOT)
    at = {s: (xs[s.column], y + _HEAD) for s, y in centres.items()}
    _title(axes, graph, stages, title)
    _stage_bands(axes, paths, xs, box, bottom, stages, names, op_ms)
    _cut_lines(axes, graph, paths, xs, bottom)
    for a, b in paths.edges:
        _edge(axes, at[a], at[b], _half(a, box), _half(b, box), b)
    for slot, (x, y) in at.items():
        _slot(axes, slot, x, y, _half(slot, box), heights[slot], text[slot])
    _legend(axes, bottom + _FOOT - 14)
    return render(figure, form)


def _room(stages: int, width: int) -> int:
    """How many columns of boxes fit beside the cuts, inputs and outputs; never fewer than the stages."""
    fixed = 2 * _SIDE + 2 * (_IO + _SPACE) + (stages - 1) * (_PILL + _SPACE) - _SPACE
    return max(stages, min(10, (width - fixed) // (_LEAST + _SPACE)))


def _columns(paths: Paths, width: int) -> tuple[list[float], float, int]:
    """The centre of each column, the width of a box, and the width of the picture."""
    kinds = [paths.kind(column) for column in range(len(paths.columns))]
    fixed = {"io": _IO, "cut": _PILL}
    spare = width - 2 * _SIDE - _SPACE * (len(kinds) - 1) - sum(fixed.get(k, 0) for k in kinds)
    boxes = max(1, kinds.count("op"))
    box = min(max(spare / boxes, _LEAST), 170)
    total = 2 * _SIDE + _SPACE * (len(kinds) - 1) + sum(fixed.get(k, box) for k in kinds)
    x, centres = _SIDE + max(0.0, (width - total) / 2), []
    for kind in kinds:
        own = fixed.get(kind, box)
        centres.append(x + own / 2)
        x += own + _SPACE
    return centres, box, max(width, int(total))


def _half(slot: Slot, box: float) -> float:
    return {"op": box / 2, "input": _IO / 2, "output": _IO / 2, "tensor": _PILL / 2, "through": box / 2}[slot.kind]


def _text(graph: FusedGraph, slot: Slot, box: float, op_ms: Sequence[float]) -> list[str]:
    limit = int((box - 8) / 6.2)
    if slot.kind == "op":
        return _op_text(graph, slot.ops, limit, op_ms)
    if slot.kind == "tensor":
        total = size(sum(graph.tensors[t].bytes for t in slot.tensors))
        name = lines(slot.tensors[0], 15) if len(slot.tensors) == 1 else [f"{len(slot.tensors)} tensors"]
        return [*name, total]
    if slot.kind in ("input", "output"):
        return [*lines(slot.tensors[0], 12), size(graph.tensors[slot.tensors[0]].bytes)]
    return []


def _op_text(graph: FusedGraph, ops: Sequence[int], limit: int, op_ms: Sequence[float]) -> list[str]:
    found = [graph.ops[i].name for i in ops]
    if len(found) == 1:
        text = lines(found[0], limit, 3)
    elif len(found) <= 3:
        text = [label(name, limit) for name in found]
    else:
        text = [f"{len(found)} ops", *lines(found[0], limit), "…", *lines(found[-1], limit)]
    if op_ms:
        text.append(milliseconds(sum(op_ms[i] for i in ops)))
    return text


def _height(slot: Slot, text: Sequence[str]) -> float:
    return 8.0 if slot.kind == "through" else len(text) * _LINE + 8


def _title(axes: Axes, graph: FusedGraph, stages: Sequence[Sequence[int]], title: str) -> None:
    write(axes, _SIDE, 18, label(title or f"{graph.name}: {len(stages)} stages", 120), px=15, weight="bold")
    count = f"{len(graph.ops)} fused ops, in the order data flows; a box with several ops stands for all of them"
    write(axes, _SIDE, 38, count, px=11, color=INK)


def _stage_bands(
    axes: Axes,
    paths: Paths,
    xs: Sequence[float],
    box: float,
    bottom: float,
    stages: Sequence[Sequence[int]],
    names: Sequence[str],
    op_ms: Sequence[float],
) -> None:
    from matplotlib.patches import Rectangle

    for stage, ops in enumerate(stages):
        own = [x for column, x in enumerate(xs) if paths.stage(column) == stage]
        left, right = min(own) - box / 2 - 9, max(own) + box / 2 + 9
        area = Rectangle((left, 52), right - left, bottom - 52 + 12, facecolor=colour(stage), edgecolor="none")
        area.set_alpha(0.10)
        axes.add_patch(area)
        limit = int((right - left) / 7)
        name = f"stage {stage}" + (f", {names[stage]}" if stage < len(names) else "")
        time = f", {milliseconds(sum(op_ms[i] for i in ops))}" if op_ms else ""
        style = {"ha": "center", "color": INK}
        write(axes, (left + right) / 2, 62, label(name, limit), px=12, weight="bold", **style)
        write(axes, (left + right) / 2, 77, label(f"{len(ops)} ops{time}", limit), px=11, **style)


def _cut_lines(axes: Axes, graph: FusedGraph, paths: Paths, xs: Sequence[float], bottom: float) -> None:
    for cut, column in enumerate(paths.cut_columns):
        x, tensors = xs[column], paths.live[cut]
        axes.plot((x, x), (52, bottom + 14), linestyle=(0, (5, 3)), color=INK, linewidth=1.6, zorder=1.5)
        total = size(sum(graph.tensors[t].bytes for t in tensors))
        text = f"cut {cut + 1}: {total} in {len(tensors)} tensor{'s' * (len(tensors) != 1)}"
        write(axes, x, bottom + 24, text, px=12, weight="bold", ha="center")


def _edge(axes: Axes, a: tuple[float, float], b: tuple[float, float], left: float, right: float, target: Slot) -> None:
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    start, end = (a[0] + left, a[1]), (b[0] - right, b[1])
    middle = (start[0] + end[0]) / 2
    route = Path([start, (middle, start[1]), (middle, end[1]), end], [Path.MOVETO, *[Path.CURVE4] * 3])
    style = "-" if target.kind == "through" else "-|>"
    arrow = FancyArrowPatch(path=route, arrowstyle=style, mutation_scale=7, linewidth=1.0, color=_WIRE, zorder=2)
    arrow.set_fill(target.kind != "through")
    axes.add_patch(arrow)


def _slot(axes: Axes, slot: Slot, x: float, y: float, half: float, height: float, text: Sequence[str]) -> None:
    from matplotlib.patches import FancyBboxPatch

    if slot.kind == "through":
        axes.plot((x - half, x + half), (y, y), color=_WIRE, linewidth=1.0, zorder=2)
        return
    rounding = {"op": 3.0, "tensor": height / 2, "input": 8.0, "output": 8.0}[slot.kind]
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
        write(axes, x, top + i * _LINE, line, px=10, ha="center", zorder=4, weight="bold" if bold else "normal")


def _legend(axes: Axes, y: float) -> None:
    text = (
        "box: fused op, border in the colour of its stage    round: live tensor with its size, sent once over the cut"
        "    dashed: cut    grey border: input or output of the model"
    )
    write(axes, _SIDE, y, text, px=11)
