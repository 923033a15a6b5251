"""What a running study tells its user on standard error: a live table on a terminal, one line a trial elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from autosplit.printable import printable
from autosplit.units import milliseconds

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live


@dataclass(frozen=True)
class Status:
    """A finished trial, and where the study stands; times in ms, ``seconds_left`` an estimate, None where unknown."""

    number: int
    period_ms: float | None
    stage_ms: Sequence[float]
    error: str | None
    best_ms: float | None
    bound_ms: float | None
    finished: int
    total: int
    seconds_left: float | None


class Progress(Protocol):
    """Receives what happens in a study."""

    def note(self, text: str) -> None:
        """Something the user should know, in one line."""

    def trial(self, status: Status) -> None:
        """A trial is finished."""

    def close(self) -> None:
        """The study is over; it can be called twice."""


class Silent:
    """Says nothing."""

    def note(self, text: str) -> None:
        """Drop the line."""

    def trial(self, status: Status) -> None:
        """Drop the trial."""

    def close(self) -> None:
        """Nothing is open."""


class Lines:
    """One line a trial."""

    def note(self, text: str) -> None:
        """Print the line."""
        print(printable(text), file=sys.stderr, flush=True)

    def trial(self, status: Status) -> None:
        """Print the trial with the best so far."""
        self.note(f"trial {status.number}: {_result(status)}; {_standing(status)}")

    def close(self) -> None:
        """Nothing is open."""


class LiveTable:
    """A table of the latest trials that changes in place, the standing below it, and how long the latest step has lasted."""

    SHOWN = 12
    REFRESHES = 0.2  # a second: a sign of life that disturbs no measurement

    def __init__(self) -> None:
        self._trials: list[Status] = []
        self._notes: list[str] = []
        self._live: Live | None = None
        self._since = time.monotonic()

    def note(self, text: str) -> None:
        """Show the line below the table, until the next trial is finished."""
        self._notes, self._since = [*self._notes, printable(text)][-3:], time.monotonic()
        self._show()

    def trial(self, status: Status) -> None:
        """Add a row and bring the standing up to date."""
        self._trials, self._notes = [*self._trials, status][-self.SHOWN :], []
        self._since = time.monotonic()
        self._show()

    def close(self) -> None:
        """Leave the last state on the terminal."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _show(self) -> None:
        from rich.console import Console
        from rich.live import Live

        if self._live is None:
            console = Console(stderr=True)
            self._live = Live(
                get_renderable=self._view, console=console, refresh_per_second=self.REFRESHES
            )
            self._live.start()
        self._live.refresh()

    def _view(self) -> Group:
        """The latest trials, the best of them in bold, then in whole lines the standing and the latest notes."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        if not self._trials:
            return Group(*map(Text, self._told()))
        table = Table("trial", "period", "busy time of each stage")
        standing = self._trials[-1]
        for status in self._trials:
            period = "failed" if status.period_ms is None else milliseconds(status.period_ms)
            detail = printable(status.error or ", ".join(map(milliseconds, status.stage_ms)))
            best = status.period_ms is not None and status.period_ms == standing.best_ms
            table.add_row(
                *map(Text, (str(status.number), period, detail)), style="bold" if best else None
            )
        return Group(table, Text(_standing(standing)), *map(Text, self._told()))

    def _told(self) -> list[str]:
        """The latest notes, the last with the seconds since."""
        lasted = time.monotonic() - self._since
        last = [
            f"{note}, for {duration(lasted)}" if lasted >= 1 else note for note in self._notes[-1:]
        ]
        return [*self._notes[:-1], *last]


def progress() -> Progress:
    """The right one for this process's standard error."""
    return LiveTable() if sys.stderr.isatty() else Lines()


def duration(seconds: float) -> str:
    """A time for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _result(status: Status) -> str:
    if status.period_ms is None:
        return f"failed: {status.error}"
    return (
        f"{milliseconds(status.period_ms)}, stages {', '.join(map(milliseconds, status.stage_ms))}"
    )


def _standing(status: Status) -> str:
    parts = [f"{status.finished} of {status.total} trials"]
    parts += [f"best {milliseconds(status.best_ms)}"] if status.best_ms is not None else []
    parts += (
        [f"predicted bound {milliseconds(status.bound_ms)}"] if status.bound_ms is not None else []
    )
    parts += (
        [f"about {duration(status.seconds_left)} left"] if status.seconds_left is not None else []
    )
    return ", ".join(parts)
