"""A pipeline run as it happened: who computed which item when, and where it waited."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from autosplit.errors import ConfigError
from autosplit.files import atomic_write
from autosplit.hardware.execution.engine import StageEvent
from autosplit.report.drawing.canvas import PALETTE, Canvas, ink_on, label, ticks
from autosplit.units import milliseconds

_LEFT, _RIGHT, _TOP, _ROW, _FOOT = 170, 120, 62, 46, 46
_WIDTH = 1400
ITEMS = 24  # of a run: more leave no room for their numbers


def timeline(
    events: Sequence[StageEvent], names: Sequence[str] = (), replicas: Sequence[int] = ()
) -> Canvas:
    """One row a replica, one bar an item with its number; grey where the replica waited.

    ``events`` are in ms, in any order; of a long run the first items are drawn. ``names`` label the
    rows, ``replicas`` are those of each stage, by default one.
    """
    run = sorted(events, key=lambda e: (e.start, e.stage))
    stages = max([*(e.stage + 1 for e in run), 1])
    first_row = [0, *accumulate(replicas or [1] * stages)]
    rows = max(first_row[-1], len(names))
    items = list(dict.fromkeys(e.item for e in run))
    drawn = [e for e in run if e.item in items[:ITEMS]]
    start = min((e.start for e in drawn), default=0.0)
    drawn = [e._replace(start=e.start - start, end=e.end - start) for e in drawn]
    span = max([*(e.end for e in drawn), 1e-9])

    canvas = Canvas(_WIDTH, _TOP + rows * _ROW + _FOOT)
    canvas.text(12, 18, "A run from its start", "bold", px=14)
    count = f"{len(items)} items"
    if len(items) > ITEMS:
        count = f"the first {ITEMS} of {count}"
    caption = f"{count} in {milliseconds(span)}; a number is an item, grey is waiting"
    canvas.text(12, 40, caption, px=11)
    scale = (_WIDTH - _LEFT - _RIGHT) / span
    for row in range(rows):
        y = _TOP + row * _ROW + 4
        name = names[row] if row < len(names) else f"stage {row}"
        in_row = [e for e in drawn if first_row[e.stage] + e.replica == row]
        canvas.text(_LEFT - 10, y + (_ROW - 12) / 2, label(name, 24), "end", px=12)
        _bars(canvas, y, in_row, scale, span)
    _axis(canvas, span, scale, _TOP + rows * _ROW + 6)
    return canvas


def _bars(
    canvas: Canvas, y: float, events: Sequence[StageEvent], scale: float, span: float
) -> None:
    """The row of one replica, with the share of time that it was busy."""
    height = _ROW - 12
    middle = y + height / 2
    busy, previous_end = 0.0, None
    for event in events:
        if previous_end is not None and event.start > previous_end:
            waited = (event.start - previous_end) * scale
            canvas.rectangle(_LEFT + previous_end * scale, y, waited, height, "idle")
        x, width = _LEFT + event.start * scale, max((event.end - event.start) * scale, 0.5)
        fill = PALETTE[event.item % len(PALETTE)]
        took = milliseconds(event.end - event.start)
        with canvas.group(f"item {event.item}: {took}, from {milliseconds(event.start)}"):
            canvas.rectangle(x, y, width, height, fill=fill, stroke="white", stroke_width=0.6)
            number = str(event.item)
            if width > 7 * len(number) + 4:
                canvas.text(x + width / 2, middle, number, f"middle bold {ink_on(fill)}")
        busy += event.end - event.start
        previous_end = max(event.end, previous_end or event.end)
    if events:
        whole = max(events[-1].end - events[0].start, 1e-9)
        canvas.text(_LEFT + span * scale + 8, middle, f"{busy / whole:.0%} busy", px=12)


def _axis(canvas: Canvas, span: float, scale: float, y: float) -> None:
    canvas.line((_LEFT, _LEFT + span * scale), (y, y), "line")
    for tick in ticks(0.0, span, 10):
        x = _LEFT + tick * scale
        canvas.line((x, x), (y, y + 5), "line")
        canvas.text(x, y + 16, f"{tick:.6g} ms", "middle")


def check(file: Path) -> None:
    """Check the name of a timeline before the pipeline runs. Raises ConfigError if it is no SVG."""
    if file.suffix.lower() != ".svg":
        raise ConfigError(
            f"--timeline '{file}' is not an .svg file; name it {file.stem or 'run'}.svg"
        )


def write(events: Sequence[StageEvent], devices: Sequence[Sequence[object]], file: Path) -> None:
    """Draw the first items of a traced run; ``devices`` are those of each stage's replicas.

    Raises MachineError if the disk refuses.
    """
    names = [f"stage {s}, {device}" for s, places in enumerate(devices) for device in places]
    in_ms = [e._replace(start=e.start * 1e3, end=e.end * 1e3) for e in events]
    picture = timeline(in_ms, names, list(map(len, devices)))
    with atomic_write(file) as temporary:
        temporary.write_bytes(picture.render())
