"""The timeline of a real pipeline run, as a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autosplit.errors import ConfigError
from autosplit.files import atomic_write
from autosplit.hardware.execution.event import StageEvent
from autosplit.report.drawing.style import Form, canvas
from autosplit.report.drawing.timeline import timeline

ITEMS = 24  # of a run: more leave no room for their numbers at 1,400 px
_FORMS: dict[str, Form] = {".svg": "svg", ".png": "png"}
_MS = 1e3


def check(file: Path) -> None:
    """Raises ConfigError for a file name whose suffix is no picture's, MachineError where matplotlib is missing."""
    if file.suffix.lower() not in _FORMS:
        raise ConfigError(
            f"--timeline '{file}' is no picture; name it {file.stem or 'run'}.svg or .png"
        )
    canvas(1, 1)


def write(
    events: Sequence[StageEvent], devices: Sequence[str], file: Path, items: int = ITEMS
) -> None:
    """Draw the first ``items`` items that a pipeline with ``trace`` computed, one row a stage with its device.

    Raises MachineError where matplotlib is missing or the disk refuses.
    """
    data = timeline(
        rows(events, items),
        [f"stage {i}, {device}" for i, device in enumerate(devices)],
        title="A run from its start",
        form=_FORMS[file.suffix.lower()],
    )
    with atomic_write(file) as temporary:
        temporary.write_bytes(data)


def rows(events: Sequence[StageEvent], items: int) -> list[StageEvent]:
    """The events of the first ``items`` items, in ms since the first of them was begun."""
    shown = [e for e in events if e.item < items]
    start = min((e.start for e in shown), default=0.0)
    return [
        StageEvent(e.stage, e.item, (e.start - start) * _MS, (e.end - start) * _MS) for e in shown
    ]
