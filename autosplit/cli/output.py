"""Everything a command prints. Results go to standard output, notes to standard error.

A result is a table or one JSON document and nothing else. No other module of the command line
prints, so that every string from outside passes ``printable`` here.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from autosplit.errors import MachineError
from autosplit.printable import printable

if TYPE_CHECKING:
    from autosplit.report.documents.record import Study


_forms = {"csv": False}  # how tables are printed by the running command


def use_csv(is_wanted: bool) -> None:
    """Print tables as CSV from now on, and what stands around them on standard error."""
    _forms["csv"] = is_wanted


def note(text: str) -> None:
    """Print a line about the command itself: an error, a warning, progress."""
    print(_broken(printable(text), sys.stderr), file=sys.stderr, flush=True)


def _broken(text: str, stream: TextIO) -> str:
    """A text whose lines fit a terminal; only a single word may be longer."""
    width = shutil.get_terminal_size().columns
    if not stream.isatty() or max(map(len, text.splitlines()), default=0) <= width:
        return text
    wrapper = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False)
    return "\n".join(map(wrapper.fill, text.splitlines()))


class PhaseLines:
    """A listener that prints each new phase as a line; of those that count, one a second."""

    def __init__(self) -> None:
        self._phase = self._kind = ""
        self._printed = 0.0

    def __call__(self, phase: str, stages: Mapping[str, object]) -> None:
        """Print a phase."""
        if phase == self._phase:
            return
        self._phase, kind = phase, phase.rstrip("0123456789/ ")
        now = time.monotonic()
        if kind != self._kind or now - self._printed >= 1:
            self._kind, self._printed = kind, now
            note(phase)


def flush() -> None:
    """Write out what was printed. Raises MachineError where standard output takes no more."""
    with _to_standard_output():
        sys.stdout.flush()


def drop_unwritten() -> None:
    """Leave nothing for the end of the interpreter, which would report a full disk once more."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def emit_text(text: str) -> None:
    """Print text of our own as it is, such as help, at once."""
    _write(text)
    flush()


def _write(text: str) -> None:
    with _to_standard_output():
        sys.stdout.write(text)


@contextlib.contextmanager
def _to_standard_output() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # its reader has left
        raise
    except OSError as error:
        raise MachineError(
            f"cannot write standard output: {error.strerror}; free the disk or write it elsewhere"
        ) from error


def emit_line(text: object) -> None:
    """Print a line of the result, on a terminal broken between words."""
    if _forms["csv"] and text:
        note(str(text))
        return
    if _forms["csv"] and text:
        note(str(text))
        return
    _write(_broken(printable(text), sys.stdout) + "\n")


def emit(form: str, document: Mapping[str, Any], line: str) -> None:
    """Print a result that people read in one line: the document as ``json``, else the line."""
    if form == "json":
        emit_json(document)
    else:
        emit_line(line)


def emit_study(study: Study, url: str, form: str, export: str | None = None) -> None:
    """Print the record of a study: as JSON, or as tables for people; ``export``: where it went."""
    from autosplit.report.documents.study import tables, written

    if form == "json":
        emit_json(written(study, url) | ({"export": export} if export else {}))
        return
    for line in study.record.verdict.text.splitlines():
        emit_line(line)
    for table in tables(study):
        emit_table(table.title, table.columns, table.rows)
        emit_line("")
    if study.bound:
        emit_line(f"predicted bound {study.bound}")
    if export:
        emit_line(f"exported to {export}")


def emit_json(document: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print one JSON document; numbers that are not finite become null."""
    # JSON in ASCII escapes every control character but DEL.
    _write(json.dumps(_finite(document), indent=1).replace("\x7f", r"\u007f") + "\n")


def emit_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table; columns of numbers are right-aligned.

    Off a terminal a row is a line with all of its texts, whatever the width. On a terminal, long
    texts are broken between words or end in an ellipsis, and columns without room are named below.
    Where rich is not installed, which a machine that only runs exports does without, a terminal
    gets plain lines too.
    """
    texts = [list(map(printable, row)) for row in rows]
    if _forms["csv"]:
        lines = io.StringIO()
        csv.writer(lines, lineterminator="\n").writerows([list(columns), *texts])
        _write(lines.getvalue())
        return
    if _forms["csv"]:
        lines = io.StringIO()
        csv.writer(lines, lineterminator="\n").writerows([list(columns), *texts])
        _write(lines.getvalue())
        return
    table = [Column(printable(name), [row[i] for row in texts]) for i, name in enumerate(columns)]
    if title:
        emit_line(title)
    try:
        drawn = _drawn(table) if sys.stdout.isatty() else _plain(table)
    except ImportError:
        drawn = _plain(table)
    _write(drawn)


class Column(NamedTuple):
    """A column of a table."""

    name: str
    cells: Sequence[str]

    @property
    def is_numeric(self) -> bool:
        """Whether there are cells and all of them are numbers or empty."""
        digits = [cell.translate(_SIGNS) for cell in self.cells]
        return bool(digits) and all(text.isdigit() or not text for text in digits)

    @property
    def width(self) -> int:
        """The length of the longest text."""
        return max(map(len, (self.name, *self.cells)))


_SIGNS = str.maketrans("", "", ".,-% ")
_LEGIBLE = 12  # characters that a text is not shortened below


def _drawn(columns: Sequence[Column]) -> str:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    width = shutil.get_terminal_size().columns
    console, table = Console(file=io.StringIO(), force_terminal=True, width=width), Table()
    # A border takes three places.
    least = [3 + (c.width if c.is_numeric else min(c.width, _LEGIBLE)) for c in columns]
    count = sum(total < width for total in accumulate(least))
    for column in columns[:count]:
        if column.is_numeric:
            table.add_column(column.name, justify="right", no_wrap=True)
        else:
            table.add_column(column.name, overflow="ellipsis")
    for row in zip(*(column.cells for column in columns[:count]), strict=True):
        # As Text: rich would read [brackets] in a name as markup.
        table.add_row(*map(Text, row))
    # Printing directly, rich ends the program itself where the reader has left.
    with console.capture() as captured:
        console.print(table)
    hidden = ", ".join(column.name for column in columns[count:])
    note = f"no room for: {hidden}; widen the terminal or give -f json"
    return captured.get() + (_broken(note, sys.stdout) + "\n" if hidden else "")


def _plain(columns: Sequence[Column]) -> str:
    padded = []
    for column in columns:
        pad = str.rjust if column.is_numeric else str.ljust
        padded.append([pad(text, column.width) for text in (column.name, *column.cells)])
    return "".join("  ".join(row).rstrip() + "\n" for row in zip(*padded, strict=True))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        # NaN differs from itself; json would write NaN and Infinity, which is no JSON.
        return value if value == value and abs(value) != float("inf") else None
    if isinstance(value, Mapping):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value
