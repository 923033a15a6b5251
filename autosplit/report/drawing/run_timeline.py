"""The timeline of a real pipeline run, as a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autosplit.errors import ConfigError
from autosplit.files import atomic_write
from autosplit.hardware.execution.event import StageEvent
from autosplit.report.drawing.canvas import Canvas, Form
from autosplit.report.drawing.timeline import timeline

ITEMS = 24  # of a run: more leave no room for their numbers at 1,400 px
_FORMS: dict[str, Form] = {".svg": "svg", ".png": "png"}
_MS = 1e3


def check(file: Path) -> None:
    """Check that the timeline can be drawn, before the pipeline runs.

    Raises:
        ConfigError: the suffix of the file is no picture's.
        MachineError: matplotlib is missing.
    """
    if file.suffix.lower() not in _FORMS:
        name = file.stem or "run"
        raise ConfigError(f"--timeline '{file}' is no picture; name it {name}.svg or .png")
    Canvas(1, 1)


def write(
    events: Sequence[StageEvent], devices: Sequence[str], file: Path, items: int = ITEMS
) -> None:
    """Draw the first ``items`` items of a traced run. Raises MachineError if the disk refuses."""
    names = [f"stage {i}, {device}" for i, device in enumerate(devices)]
    form = _FORMS[file.suffix.lower()]
    picture = timeline(rows(events, items), names, title="A run from its start", form=form)
    with atomic_write(file) as temporary:
        temporary.write_bytes(picture)


def rows(events: Sequence[StageEvent], items: int) -> list[StageEvent]:
    """The events of the first ``items`` items, in ms since the first of them began."""
    drawn = [e for e in events if e.item < items]
    start = min((e.start for e in drawn), default=0.0)
    return [e._replace(start=(e.start - start) * _MS, end=(e.end - start) * _MS) for e in drawn]
