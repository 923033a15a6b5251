"""How evenly a split loads its stages: a bar for each, against the period that all wait for."""

from __future__ import annotations

from collections.abc import Sequence

from autosplit.report.drawing.canvas import FAINT, INK, Canvas, Form, colour, label
from autosplit.units import milliseconds

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
    """The busy time of each stage as a bar in an outline up to the period, with the even share.

    ``stage_ms`` are busy times an item in ms, ``names`` label them. ``period_ms`` is the measured
    period, by default the slowest stage. ``width`` is in pixels. Raises MachineError without
    matplotlib.
    """
    period = period_ms or max([*stage_ms, 1e-9])
    bottom = _TOP + max(len(stage_ms), 1) * _ROW
    canvas = Canvas(width, bottom + _FOOT)
    scale = (width - _LEFT - _RIGHT) / max(period, *stage_ms, 0.0)
    if title:
        canvas.text(12, 16, label(title, 110), px=13, weight="bold")
    for stage, busy in enumerate(stage_ms):
        y, height = _TOP + stage * _ROW + 6, _ROW - 12
        outline = {"facecolor": "none", "edgecolor": FAINT, "linewidth": 0.8}
        canvas.rectangle(_LEFT, y, period * scale, height, **outline)
        canvas.rectangle(_LEFT, y, max(busy, 0.0) * scale, height, facecolor=colour(stage))
        name = names[stage] if stage < len(names) else f"stage {stage}"
        middle = y + height / 2
        canvas.text(_LEFT - 10, middle, label(name, 28), px=12, ha="right")
        text = f"{milliseconds(busy)}, {min(busy / period, 1):.0%} busy"
        canvas.text(width - _RIGHT + 10, middle, text, px=12)
    if stage_ms:
        mean = sum(stage_ms) / len(stage_ms)
        marks = (
            (mean, ":", f"even share {milliseconds(mean)}", "right"),
            (period, "-", f"period {milliseconds(period)}", "left"),
        )
        for time, dashes, text, side in marks:
            x = _LEFT + time * scale
            style = {"linestyle": dashes, "color": INK, "linewidth": 1.2}
            canvas.line((x, x), (_TOP - 6, bottom + 4), **style)
            canvas.text(x - 4, bottom + 16, text, px=11, ha=side)
    return canvas.render(form)
