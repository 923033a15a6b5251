"""When each replica of a pipeline computed which item, from a file of ``bench --trace``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

from autosplit.errors import ConfigError, line_of
from autosplit.files import open_regular
from autosplit.report.drawing.canvas import Canvas, colour, label, ticks
from autosplit.serialization import problem_of
from autosplit.units import digits

_WIDTH, _ROW, _BAR, _TOP, _FOOT, _SIDE = 900, 44, 20, 8, 34, 12
_ITEMS = 12  # computed by the first stage in the time that is shown
_LETTER = 6.5  # pixels of a letter
_US, _MAX_EVENTS = 1000.0, 1_000_000  # microseconds in a millisecond

Index = Annotated[int, Field(ge=0, le=4096)]
Time = Annotated[float, Field(ge=0, lt=2**53)]  # floats beyond differ by 2 or more


class _Event(BaseModel):
    ph: str
    name: str
    pid: Index = 0
    tid: Index = 0
    ts: Time = 0.0
    dur: Time = 0.0
    cat: str = ""
    args: dict[str, str | int] = {}


class _Trace(BaseModel):
    traceEvents: Annotated[list[_Event], Field(max_length=_MAX_EVENTS)]


def timeline(file: Path) -> Canvas:
    """Draw a dozen items from the middle of a run.

    Raises:
        ConfigError: the file is not a trace of a pipeline.
    """
    try:
        with open_regular(file) as stream:
            events = _Trace.model_validate_json(stream.read()).traceEvents
    except (OSError, ValidationError) as error:
        reason = line_of(error) if isinstance(error, OSError) else problem_of(error, "its text")
        raise ConfigError(
            f"'{file}' is no trace of a pipeline ({reason}); "
            "give a file of `autosplit bench DIR --trace FILE`"
        ) from error
    items = [event for event in events if event.ph == "X" and event.cat == "item"]
    names = {(e.pid, e.tid): str(e.args.get("name")) for e in events if e.name == "thread_name"}
    starts = sorted(event.ts for event in items if event.pid == 0)
    if not starts:
        raise ConfigError(f"'{file}' has no items; give a longer run: bench DIR --seconds 5")
    first = max(0, (len(starts) - _ITEMS) // 2)
    window = starts[first : first + _ITEMS + 1]
    about = f"A part of the run in {file.name}: which stage computed which item, and when."
    return _drawn(items, names, (window[0], max(window[-1], window[0] + 1.0)), about)


def _drawn(
    items: list[_Event], names: dict[tuple[int, int], str], ends: tuple[float, float], about: str
) -> Canvas:
    start, end = ends
    tracks = {track: row for row, track in enumerate(sorted({(e.pid, e.tid) for e in items}))}
    bottom = _TOP + len(tracks) * _ROW
    canvas, scale = Canvas(_WIDTH, bottom + _FOOT, about), (_WIDTH - 2 * _SIDE) / (end - start)
    for value in ticks((end - start) / _US):
        x = _SIDE + value * _US * scale
        canvas.line((x, x), (_TOP, bottom), "grid")
        canvas.text(x, bottom + 14, digits(value), "middle")
    canvas.text(_WIDTH - _SIDE, bottom + 27, "ms", "end")
    for (stage, replica), row in tracks.items():
        name = f"stage {stage}, {names.get((stage, replica), f'replica {replica}')}"
        canvas.text(_SIDE, _TOP + row * _ROW + 9, label(name, 80))
    for event in items:
        left, right = max(event.ts, start), min(event.ts + event.dur, end)
        if left < right:
            y = _TOP + tracks[event.pid, event.tid] * _ROW + 18
            x, width = _SIDE + (left - start) * scale, (right - left) * scale
            with canvas.group(f"stage {event.pid}, {event.name}: {digits(event.dur / _US)} ms"):
                number = str(event.args.get("item", ""))
                opacity = 0.6 if number[-1:] in tuple("02468") else 0.35
                canvas.rectangle(x, y, width, _BAR, fill=colour(event.pid), fill_opacity=opacity)
                if width > _LETTER * len(number) + 4:
                    canvas.text(x + width / 2, y + _BAR / 2, number, "middle")
    return canvas
