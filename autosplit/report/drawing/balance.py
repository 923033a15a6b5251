"""How evenly a split loads its stages: one bar a stage, against the period they all wait for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from autosplit.report.drawing.style import FAINT, INK, Form, canvas, colour, label, render, write
from autosplit.units import milliseconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEFT, _RIGHT, _TOP, _ROW, _FOOT = 200, 150, 46, 40, 30


def stage_balance(
    stage_ms: Sequence[float],
    names: Sequence[str],
    period_ms: float | None = None,
    *,
    title: str = "",
    form: Form = "png",
    width: int = 1000,
) -> bytes:
    """The busy time of each stage as a bar, what it waits for as an outline up to the period.

    ``stage_ms`` are busy times an item in ms, ``names`` label them; ``period_ms`` is the measured time between two
    results (the slowest stage where it is not given). The even share, the mean of the stages, is marked. ``width`` is
    in pixels. Raises MachineError where matplotlib is missing.
    """
    period = period_ms or max([*stage_ms, 1e-9])
    rows = max(len(stage_ms), 1)
    figure, axes = canvas(width, _TOP + rows * _ROW + _FOOT)
    scale = (width - _LEFT - _RIGHT) / max(period, *stage_ms, 0.0)
    if title:
        write(axes, 12, 16, label(title, 110), px=13, weight="bold")
    for i, busy in enumerate(stage_ms):
        name = names[i] if i < len(names) else f"stage {i}"
        _bar(axes, i, name, busy, period, scale, width - _RIGHT)
    if stage_ms:
        bottom = _TOP + rows * _ROW
        mean = sum(stage_ms) / len(stage_ms)
        _mark(axes, _LEFT + mean * scale, bottom, ":", f"even share {milliseconds(mean)}", "right")
        _mark(axes, _LEFT + period * scale, bottom, "-", f"period {milliseconds(period)}", "left")
    return render(figure, form)


def _bar(
    axes: Axes, stage: int, name: str, busy: float, period: float, scale: float, right: float
) -> None:
    from matplotlib.patches import Rectangle

    y, height = _TOP + stage * _ROW + 6, _ROW - 12
    axes.add_patch(
        Rectangle(
            (_LEFT, y), period * scale, height, facecolor="none", edgecolor=FAINT, linewidth=0.8
        )
    )
    axes.add_patch(
        Rectangle(
            (_LEFT, y), max(busy, 0.0) * scale, height, facecolor=colour(stage), edgecolor="none"
        )
    )
    write(axes, _LEFT - 10, y + height / 2, label(name, 28), px=12, ha="right")
    text = f"{milliseconds(busy)}, {min(busy / period, 1):.0%} busy"
    write(axes, right + 10, y + height / 2, text, px=12)


def _mark(axes: Axes, x: float, bottom: float, style: str, text: str, side: str) -> None:
    axes.plot((x, x), (_TOP - 6, bottom + 4), linestyle=style, color=INK, linewidth=1.2)
    write(axes, x - 4, bottom + 16, text, px=11, ha=side)
