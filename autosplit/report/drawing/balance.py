"""How evenly the stages are loaded: a bar for each, against the period that all wait for."""

from __future__ import annotations

from collections.abc import Sequence

from autosplit.report.drawing.canvas import Canvas, colour, label
from autosplit.units import milliseconds

_SIDE, _ROW, _BAR, _FOOT = 12, 50, 24, 20


def stage_balance(
    busy_ms: Sequence[float], names: Sequence[str], period_ms: float | None, width: int = 560
) -> Canvas:
    """The busy time of each stage for an item, shared by its replicas, up to the period.

    ``names`` label the stages. ``period_ms`` is the measured period, by default the slowest stage;
    ``width`` is in pixels.
    """
    period = period_ms or max([*busy_ms, 1e-9])
    bottom = 4 + max(len(busy_ms), 1) * _ROW
    canvas = Canvas(width, bottom + _FOOT)
    scale = (width - 2 * _SIDE) / max(period, *busy_ms, 0.0)
    for stage, busy in enumerate(busy_ms):
        y = 24 + stage * _ROW
        name = names[stage] if stage < len(names) else f"stage {stage}"
        text = f"{milliseconds(busy)}, {min(busy / period, 1):.0%} busy"
        with canvas.group(f"{name}: {text}"):
            canvas.rectangle(_SIDE, y, period * scale, _BAR, "faint")
            canvas.rectangle(_SIDE, y, busy * scale, _BAR, fill=colour(stage))
            canvas.text(_SIDE, y - 9, label(name, width // 8 - 20), px=12)
            canvas.text(width - _SIDE, y - 9, text, "end", px=12)
    canvas.text(_SIDE + period * scale, bottom + 8, f"period {milliseconds(period)}", "end", px=11)
    return canvas
