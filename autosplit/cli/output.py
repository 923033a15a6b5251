"""Everything a command prints. Results go to standard output, notes to standard error.

A result is a table or one JSON document and nothing else. No other module of the command line
prints, so that every string from outside passes ``printable`` here.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TextIO

from autosplit.cli.table import LEGIBLE, fitted, shortened
from autosplit.errors import MachineError
from autosplit.printable import printable
from autosplit.report.documents.table import Table

_progress = {"is_shown": False}  # whether a progress line is on the terminal
_ERASE = "\r\x1b[K"  # erases the current line of the terminal


def note(text: str) -> None:
    """Print a line about the command itself: an error, a warning, progress."""
    erase_progress()
    with contextlib.suppress(OSError):  # a command goes on if nobody can read its progress
        print(_broken(printable(text), sys.stderr), file=sys.stderr, flush=True)


def _broken(text: str, stream: TextIO) -> str:
    """Wrap a text to the width of the terminal; only a single word may be longer."""
    width = shutil.get_terminal_size().columns
    if not stream.isatty() or max(map(len, text.splitlines()), default=0) <= width:
        return text
    wrapper = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False)
    return "\n".join(map(wrapper.fill, text.splitlines()))


class PhaseLines:
    """A listener that shows the phase of a command. On a terminal it updates a single line.

    Elsewhere each new phase is a line; a phase that counts up prints at most one line per second.
    """

    def __init__(self) -> None:
        self._phase = self._kind = ""
        self._start, self._printed = time.monotonic(), 0.0

    def __call__(self, phase: str, stages: Mapping[str, object]) -> None:
        """Show a phase."""
        if phase == self._phase:
            return
        self._phase, kind = phase, phase.rstrip("0123456789/ ")
        now = time.monotonic()
        if sys.stderr.isatty():
            room = max(shutil.get_terminal_size().columns - 1, LEGIBLE)
            elapsed = f", {now - self._start:.0f} s" if now - self._start >= 1 else ""
            line = shortened(printable(phase) + elapsed, room)
            print(_ERASE + line, end="", file=sys.stderr, flush=True)
            _progress["is_shown"] = True
        elif kind != self._kind or now - self._printed >= 1:
            self._kind, self._printed = kind, now
            note(phase)


def erase_progress() -> None:
    """Erase the progress line from the terminal."""
    if _progress["is_shown"]:
        _progress["is_shown"] = False
        print(_ERASE, end="", file=sys.stderr, flush=True)


def flush() -> None:
    """Flush standard output. Raises MachineError if it cannot be written."""
    with _to_standard_output():
        sys.stdout.flush()


def drop_unwritten() -> None:
    """Discard unwritten output, for which the interpreter would report a full disk again."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def write(text: str) -> None:
    """Print a text of our own, such as help, unchanged."""
    erase_progress()
    with _to_standard_output():
        sys.stdout.write(text)


@contextlib.contextmanager
def _to_standard_output() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # the reader has closed the pipe
        raise
    except OSError as error:
        raise MachineError(
            f"cannot write standard output: {error.strerror}; free the disk or write it elsewhere"
        ) from error


def emit_line(text: object) -> None:
    """Print a line of the result; on a terminal it is wrapped between words."""
    write(_broken(printable(text), sys.stdout) + "\n")


def emit(form: str, document: Any, shown: str | Iterable[str | Table]) -> None:
    """Print a result: ``document`` if ``form`` is ``json``, else the lines and tables ``shown``.

    As CSV, standard output has the tables alone.
    """
    if form == "json":
        emit_json(document)
        return
    for part in (shown,) if isinstance(shown, str) else shown:
        if isinstance(part, Table) and form == "csv":
            _emit_csv(part)
        elif isinstance(part, Table):
            emit_table(part.title, part.columns, part.rows)
        elif form == "csv" and part:
            note(part)
        else:
            emit_line(part)


def emit_json(document: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print one JSON document; numbers that are not finite become null."""
    from pydantic_core import to_jsonable_python

    # JSON in ASCII escapes every control character but DEL.
    text = json.dumps(to_jsonable_python(document, inf_nan_mode="null"), indent=1)
    write(text.replace("\x7f", r"\u007f") + "\n")


def _emit_csv(table: Table) -> None:
    erase_progress()
    rows = (map(printable, row) for row in (table.columns, *table.rows))
    with _to_standard_output():
        csv.writer(sys.stdout, lineterminator="\n").writerows(rows)


def emit_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table with one line per row; columns of numbers are right-aligned.

    Without a terminal all texts are complete. On a terminal that is too narrow, intervals are left
    out, long texts are shortened in the middle, and columns that do not fit are named below.
    """
    texts = [list(map(printable, row)) for row in rows]
    columns = list(map(printable, columns))
    if title:
        emit_line(title)
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    text, hidden = fitted(columns, texts, room)
    write(text)
    if hidden:
        emit_line(f"no room for: {', '.join(hidden)}; widen the terminal or give -f json")
