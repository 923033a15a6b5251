"""Tables as text with one line per row, complete or fitted into the width of a terminal."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

_SIGNS = str.maketrans("", "", ".,-% ")
_INTERVAL = re.compile(r"^([\d.]+) \(\S+ to \S+\)$")
LEGIBLE = 16  # characters, below which no text is shortened
_GAP = "  "


def fitted(
    names: Sequence[str], rows: Sequence[Sequence[str]], room: int | None
) -> tuple[str, list[str]]:
    """A table of at most ``room`` characters a line, and the names of the columns left out.

    First intervals are left out, then columns at the right; texts are shortened. None: no limit.
    """
    table = [Column(name, [row[i] for row in rows]) for i, name in enumerate(names)]
    if room is None:
        return _drawn(table, sys.maxsize), []
    if _total(table, sys.maxsize) > room:
        table = [column.without_intervals() for column in table]
    ends = accumulate(column.least + len(_GAP) for column in table)
    count = max(sum(end <= room + len(_GAP) for end in ends), 1)
    limit = max((column.width for column in table), default=0)
    while limit > LEGIBLE and _total(table[:count], limit) > room:
        limit -= 1
    return _drawn(table[:count], limit), [column.name for column in table[count:]]


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
        """The width of the longest text."""
        return max(map(_places, (self.name, *self.cells)))

    @property
    def least(self) -> int:
        """The least width of the column: numbers are never shortened."""
        return self.width if self.is_numeric else min(self.width, LEGIBLE)

    def without_intervals(self) -> Column:
        """The column with ``80.1`` for ``80.1 (70.8 to 93.5)``."""
        return Column(self.name, [_INTERVAL.sub(r"\1", cell) for cell in self.cells])


def _total(columns: Sequence[Column], limit: int) -> int:
    """The width of a table whose texts are at most ``limit`` wide."""
    widths = [max(column.least, min(column.width, limit)) for column in columns]
    return sum(widths) + len(_GAP) * (len(columns) - 1)


def _drawn(columns: Sequence[Column], limit: int) -> str:
    padded = []
    for column in columns:
        width = max(column.least, min(column.width, limit))
        texts = [shortened(text, width) for text in (column.name, *column.cells)]
        blanks = [" " * (width - _places(text)) for text in texts]
        pairs = zip(texts, blanks, strict=True)
        padded.append([b + t if column.is_numeric else t + b for t, b in pairs])
    return "".join(_GAP.join(row).rstrip() + "\n" for row in zip(*padded, strict=True))


def shortened(text: str, width: int) -> str:
    """A text, whose middle is left out if it is wider than ``width``."""
    if _places(text) <= width:
        return text
    head = tail = ""
    for first, last in zip(text, reversed(text), strict=True):
        if _places(head + first + tail) >= width:
            break
        head += first
        if _places(head + last + tail) >= width:
            break
        tail = last + tail
    return f"{head}…{tail}"


def _places(text: str) -> int:
    """The width of a text on a terminal, where a Chinese character takes two places."""
    return len(text) + sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
