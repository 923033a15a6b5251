"""Everything a command prints. Results go to standard output, notes to standard error.

A result is a table or one JSON document and nothing else. No other module of the command line
prints, so that every string from outside passes ``printable`` here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from autosplit.printable import printable


def note(text: str) -> None:
    """Print a line about the command itself: an error, a warning, progress."""
    print(printable(text), file=sys.stderr, flush=True)


def emit_line(text: object) -> None:
    """Print a line of the result."""
    print(printable(text))


def emit(form: str, document: Mapping[str, Any], line: str) -> None:
    """Print a result that people read in one line: the document as ``json``, else the line."""
    if form == "json":
        emit_json(document)
    else:
        emit_line(line)


def emit_study(document: Mapping[str, Any], form: str) -> None:
    """Print the document of a study: as JSON, or as tables for people."""
    if form == "json":
        emit_json(document)
        return
    from autosplit.report.documents.study import tables

    for title, columns, rows in tables(document):
        emit_table(title, columns, rows)
        emit_line("")
    if document["verdict"]:
        emit_line(document["verdict"]["text"])
    if document.get("export"):
        emit_line(f"exported to {document['export']}")


def emit_json(document: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print one JSON document; numbers that are not finite become null."""
    # JSON in ASCII escapes every control character but DEL.
    print(json.dumps(_finite(document), indent=1).replace("\x7f", r"\u007f"))


def emit_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table; columns of numbers are right-aligned.

    Nothing is cut unless on a terminal. Where rich is not installed, which a machine that only runs
    exports does without, the columns are plain text.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    columns = [printable(column) for column in columns]
    numeric = [
        bool(cells) and all(_is_number(row[i]) for row in cells) for i in range(len(columns))
    ]
    try:
        table = _drawn(columns, cells, numeric)
    except ImportError:
        table = _plain(columns, cells, numeric)
    if title:
        emit_line(title)
    sys.stdout.write(table)


def _drawn(columns: Sequence[str], cells: Sequence[Sequence[str]], numeric: Sequence[bool]) -> str:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else _width(columns, cells))
    table = Table()
    for column, right in zip(columns, numeric, strict=True):
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    # Printing directly, rich ends the program itself where the reader has left.
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def _plain(columns: Sequence[str], cells: Sequence[Sequence[str]], numeric: Sequence[bool]) -> str:
    table = [columns, *cells]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        places = zip(row, widths, numeric, strict=True)
        lines.append(
            "  ".join(c.rjust(w) if right else c.ljust(w) for c, w, right in places).rstrip() + "\n"
        )
    return "".join(lines)


def _width(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    from rich.cells import cell_len  # a Chinese character takes two places

    cells = [max([cell_len(c), *(cell_len(r[i]) for r in rows)]) for i, c in enumerate(columns)]
    return max(80, sum(cells) + 3 * len(cells) + 1)


def _is_number(text: str) -> bool:
    return (
        text.replace(".", "")
        .replace(",", "")
        .replace("-", "")
        .replace("%", "")
        .replace(" ", "")
        .isdigit()
        or not text
    )


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if isinstance(value, Mapping):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value
