"""What a running study shows on standard error: a live table on a terminal, else plain lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autosplit.printable import printable
from autosplit.units import bound_text, milliseconds

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live


@dataclass(frozen=True)
class Status:
    """A finished trial and the state of the study.

    Times are in ms; ``seconds_left`` is an estimate, None where it is not known. ``state`` is that
    of the machine, where one is measured on.
    """

    number: int
    period_ms: float | None
    stage_ms: Sequence[float]
    error: str | None
    best_ms: float | None
    bound_ms: float | None
    finished: int
    total: int
    seconds_left: float | None
    state: str = ""


class Progress:
    """Receives what happens in a study; by itself it shows nothing."""

    def note(self, text: str) -> None:
        """A line that the user should read."""

    def trial(self, status: Status) -> None:
        """A trial is finished."""

    def close(self) -> None:
        """The study is over. Idempotent."""


class Lines(Progress):
    """A line for each trial."""

    def note(self, text: str) -> None:
        """Print the line."""
        print(printable(text), file=sys.stderr, flush=True)

    def trial(self, status: Status) -> None:
        """Print the trial with the state of the study."""
        self.note(f"trial {status.number}: {_result(status)}; {_status_line(status)}")


class LiveTable(Progress):
    """A table of the latest trials that changes in place.

    Below it are the state of the study and the latest notes, the last one with its duration.
    """

    TRIALS = 12
    NOTES = 3
    REFRESHES = 0.2  # a second: a sign of life that disturbs no measurement

    def __init__(self) -> None:
        self.trials: list[Status] = []
        self._notes: list[str] = []
        self._live: Live | None = None
        self._last_event = time.monotonic()

    def note(self, text: str) -> None:
        """Show the line below the table, until the next trial is finished."""
        # The latest few: the table has to fit a terminal of 24 lines.
        self._notes = [*self._notes, printable(text)][-self.NOTES :]
        self._last_event = time.monotonic()
        self.show()

    def trial(self, status: Status) -> None:
        """Add a row and renew the state of the study."""
        self.trials = [*self.trials, status][-self.TRIALS :]
        self._notes = []
        self._last_event = time.monotonic()
        self.show()

    def close(self) -> None:
        """Leave the last state on the terminal."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def show(self) -> None:
        """Bring the terminal up to date."""
        from rich.console import Console
        from rich.live import Live

        if self._live is None:
            self._live = Live(
                get_renderable=self.view,
                console=Console(stderr=True),
                refresh_per_second=self.REFRESHES,
            )
            self._live.start()
        self._live.refresh()

    def view(self) -> Group:
        """The latest trials, the best of them in bold, then the state and the latest notes."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        notes = [Text(note) for note in self._recent_notes()]
        if not self.trials:
            return Group(*notes)
        table = Table("trial", "period", "busy time of each stage")
        latest = self.trials[-1]
        for status in self.trials:
            detail = printable(status.error or ", ".join(map(milliseconds, status.stage_ms)))
            is_best = status.period_ms is not None and status.period_ms == latest.best_ms
            period = "failed" if status.period_ms is None else milliseconds(status.period_ms)
            cells = map(Text, (str(status.number), period, detail))
            table.add_row(*cells, style="bold" if is_best else None)
        return Group(table, Text(_status_line(latest)), *notes)

    def _recent_notes(self) -> list[str]:
        """The latest notes, the last one with the time since."""
        notes = list(self._notes)
        # A note that stands for long shows that something still runs.
        elapsed = time.monotonic() - self._last_event
        if notes and elapsed >= 1:
            notes[-1] = f"{notes[-1]}, for {duration(elapsed)}"
        return notes


def progress() -> Progress:
    """The progress for this process's standard error."""
    return LiveTable() if sys.stderr.isatty() else Lines()


def duration(seconds: float) -> str:
    """A time in seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _result(status: Status) -> str:
    if status.period_ms is None:
        return f"failed: {status.error}"
    times = ", ".join(map(milliseconds, status.stage_ms))
    return f"{milliseconds(status.period_ms)}, stages {times}"


def _status_line(status: Status) -> str:
    parts = [f"{status.finished} of {status.total} trials"]
    if status.best_ms is not None:
        parts.append(f"best {milliseconds(status.best_ms)}")
    if status.bound_ms is not None:
        parts.append(f"predicted bound {bound_text(status.bound_ms, status.best_ms)}")
    if status.seconds_left is not None:
        parts.append(f"about {duration(status.seconds_left)} left")
    parts += [status.state] if status.state else []
    return ", ".join(parts)
