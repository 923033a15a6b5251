"""A table for all outputs: the terminal, CSV and the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Table:
    """A title, columns, and rows of as many cells.

    ``marks`` maps the indices of some rows to ``best`` or ``fail``.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    marks: Mapping[int, str] = field(default_factory=dict)
