"""A pipeline run as it happened: who computed which item when, and where it waited."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from autosplit.hardware.execution.event import StageEvent
from autosplit.report.drawing.style import (
    FAINT,
    INK,
    PALETTE,
    Form,
    canvas,
    ink_on,
    label,
    render,
    write,
)
from autosplit.units import milliseconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEFT, _RIGHT, _TOP, _ROW, _FOOT = 170, 120, 62, 46, 46
_MOST = 400  # bars a picture: more are not told apart at 1,400 px


def timeline(
    events: Sequence[StageEvent | tuple[int, int, float, float]],
    names: Sequence[str] = (),
    *,
    title: str = "",
    form: Form = "png",
    width: int = 1400,
) -> bytes:
    """One row a stage, one bar an item with its number; hatched where the stage waited between two items.

    ``events`` are in ms and come in any order; of a long run the first whole items are drawn and the caption says how many.
    ``names`` label the stages, ``width`` is in pixels. Raises MachineError where matplotlib is missing.
    """
    every = sorted((StageEvent(*e) for e in events), key=lambda e: (e.start, e.stage))
    rows = max([*(e.stage + 1 for e in every), len(names), 1])
    shown = _first_items(every, max(1, _MOST // rows))
    figure, axes = canvas(width, _TOP + rows * _ROW + _FOOT)
    start = min((e.start for e in shown), default=0.0)
    span = max([*(e.end - start for e in shown), 1e-9])
    scale = (width - _LEFT - _RIGHT) / span
    items, total = len({e.item for e in shown}), len({e.item for e in every})
    caption = f"{items} items" if items == total else f"the first {items} of {total} items"
    write(axes, 12, 18, label(title, 110) if title else "Pipeline run", px=14, weight="bold")
    write(
        axes,
        12,
        40,
        f"{caption} in {milliseconds(span)}; a number is an item, hatched is waiting",
        px=11,
        color=INK,
    )
    for stage in range(rows):
        own = [
            e._replace(start=e.start - start, end=e.end - start) for e in shown if e.stage == stage
        ]
        _row(
            axes, stage, names[stage] if stage < len(names) else f"stage {stage}", own, scale, span
        )
    _axis(axes, span, scale, _TOP + rows * _ROW + 6)
    return render(figure, form)


def _first_items(events: Sequence[StageEvent], most: int) -> list[StageEvent]:
    order = list(dict.fromkeys(e.item for e in events))
    kept = set(order[:most])
    return [e for e in events if e.item in kept]


def _row(
    axes: Axes, stage: int, name: str, events: Sequence[StageEvent], scale: float, span: float
) -> None:
    from matplotlib.patches import Rectangle

    y, height = _TOP + stage * _ROW + 4, _ROW - 12
    write(axes, _LEFT - 10, y + height / 2, label(name, 24), px=12, ha="right")
    busy, free = 0.0, None
    for e in events:
        x, width = _LEFT + e.start * scale, max((e.end - e.start) * scale, 0.5)
        if free is not None and e.start > free:
            wait = Rectangle((_LEFT + free * scale, y), (e.start - free) * scale, height)
            wait.set(facecolor="#F2F2F2", edgecolor=FAINT, hatch="////", linewidth=0)
            axes.add_patch(wait)
        fill = PALETTE[e.item % len(PALETTE)]
        axes.add_patch(
            Rectangle((x, y), width, height, facecolor=fill, edgecolor="white", linewidth=0.6)
        )
        if width > 7 * len(str(e.item)) + 4:
            write(
                axes,
                x + width / 2,
                y + height / 2,
                str(e.item),
                px=11,
                ha="center",
                color=ink_on(fill),
                weight="bold",
            )
        busy, free = busy + e.end - e.start, max(e.end, free or e.end)
    if events:
        own = max(events[-1].end - events[0].start, 1e-9)
        write(axes, _LEFT + span * scale + 8, y + height / 2, f"{busy / own:.0%} busy", px=12)


def _axis(axes: Axes, span: float, scale: float, y: float) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.plot((_LEFT, _LEFT + span * scale), (y, y), color=INK, linewidth=0.8)
    for tick in MaxNLocator(nbins=10).tick_values(0.0, span):
        if 0 <= tick <= span * 1.0001:
            x = _LEFT + float(tick) * scale
            axes.plot((x, x), (y, y + 5), color=INK, linewidth=0.8)
            write(axes, x, y + 16, f"{tick:g} ms", px=11, ha="center")
