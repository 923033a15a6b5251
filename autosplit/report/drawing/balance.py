"""How evenly a split loads its stages: a bar for each, against the period that all wait for."""

from __future__ import annotations

from collections.abc import Sequence

from autosplit.report.drawing.canvas import Canvas, colour, label
from autosplit.units import milliseconds

_SIDE, _TOP, _ROW, _BAR, _FOOT = 12, 34, 50, 24, 36


def stage_balance(
    stage_ms: Sequence[float],
    names: Sequence[str],
    period_ms: float | None = None,
    *,
    title: str = "",
    width: int = 1000,
) -> Canvas:
    """The busy time of each stage as a bar in an outline up to the period, with the even share.

    ``stage_ms`` are busy times an item in ms, ``names`` label them. ``period_ms`` is the measured
    period, by default the slowest stage. ``width`` is in pixels.
    """
    period = period_ms or max([*stage_ms, 1e-9])
    top = _TOP if title else 4
    bottom = top + max(len(stage_ms), 1) * _ROW
    canvas = Canvas(width, bottom + _FOOT)
    scale = (width - 2 * _SIDE) / max(period, *stage_ms, 0.0)
    if title:
        canvas.text(_SIDE, 16, label(title, width // 9), "bold", px=13)
    for stage, busy in enumerate(stage_ms):
        y = top + stage * _ROW + 20
        name = names[stage] if stage < len(names) else f"stage {stage}"
        text = f"{milliseconds(busy)}, {min(busy / period, 1):.0%} busy"
        with canvas.group(f"{name}: {text}"):
            canvas.rectangle(_SIDE, y, period * scale, _BAR, "faint")
            canvas.rectangle(_SIDE, y, max(busy, 0.0) * scale, _BAR, fill=colour(stage))
            canvas.text(_SIDE, y - 9, label(name, width // 8 - 20), px=12)
            canvas.text(width - _SIDE, y - 9, text, "end", px=12)
    if stage_ms:
        mean = sum(stage_ms) / len(stage_ms)
        marks = ((mean, "2 3", "even share"), (period, "", "period"))
        for row, (time, dashes, what) in enumerate(marks):
            x = _SIDE + time * scale
            # Over the bars alone, since between them stand texts.
            for y in (*(top + stage * _ROW + 20 for stage in range(len(stage_ms))), bottom - 20):
                canvas.line((x, x), (y, y + _BAR), "line", stroke_dasharray=dashes)
            # The two may be near each other, so their texts stand below each other.
            canvas.text(x, bottom + 11 + 13 * row, f"{what} {milliseconds(time)}", "end", px=11)
    return canvas
