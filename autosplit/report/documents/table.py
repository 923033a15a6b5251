"""A table as every reader gets it: the terminal, CSV and the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Table:
    """A title, columns, and rows of as many cells.

    ``marks`` say for rows, by their numbers, that they are ``best`` or ``fail``.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    marks: Mapping[int, str] = field(default_factory=dict)
