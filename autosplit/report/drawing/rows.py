"""How a split graph is broken into rows: as many columns as can be read, the rest below.

A row ends at a cut, and the next one begins with the same cut. Every tensor that goes on stands at
the end of one row and again at the start of the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autosplit.graph import FusedGraph
from autosplit.report.drawing.paths import Paths, trace

SIDE, SPACE = 12, 24  # margins of the picture, distance of its columns, in pixels
IO, PILL = 84, 104  # widths of inputs and outputs, of tensors on a cut
MIN_BOX, MAX_BOX = 86, 170  # a narrower box cannot hold a name, a wider one only wastes room
_END = PILL + SPACE  # a row ends with a cut, or with inputs or outputs, which are narrower
_COLUMNS = 10  # boxes side by side in a picture of one row
_EXTRA_COLUMNS = 8  # beyond one a stage, when there are several rows


@dataclass(frozen=True)
class Row:
    """Columns that stand side by side, and the centre of each in pixels."""

    columns: tuple[int, ...]
    xs: dict[int, float]


def fitted(graph: FusedGraph, stages: Sequence[Sequence[int]], width: int) -> Paths:
    """The split as columns: with as many boxes as need no more rows than the stages do.

    ``width`` is in pixels. Raises SplitError if ``stages`` are no split of the graph.
    """
    row_count = -(-len(stages) // _stages_in_row(width))
    for boxes in range(_max_columns(len(stages), row_count, width), len(stages), -1):
        paths = trace(graph, stages, boxes)
        rows = _rows(paths, width)
        widest = max(_total_width(paths, columns, MIN_BOX) for columns in rows)
        if len(rows) <= row_count and widest <= width:
            return paths
    return trace(graph, stages, len(stages))


def arrange_rows(paths: Paths, width: int) -> tuple[list[Row], float, int]:
    """The rows, the width of a box in all of them, and the width of the picture.

    The picture is ``width`` wide if its rows fit.
    """
    rows = _rows(paths, width)
    box = min(_box_width(paths, columns, width) for columns in rows)
    total = max(width, *(int(_total_width(paths, columns, box)) for columns in rows))
    placed = [_placed(paths, columns, box, total, len(rows) > 1) for columns in rows]
    return placed, box, total


def _max_columns(stages: int, rows: int, width: int) -> int:
    """How many columns of boxes fit at most."""
    side_by_side = -(-stages // rows)
    room = width - 2 * SIDE - 2 * _END - (side_by_side - 1) * (PILL + SPACE) + SPACE
    fit = min(_COLUMNS, room // (MIN_BOX + SPACE))
    return fit if rows == 1 else min(rows * fit, stages + _EXTRA_COLUMNS)


def _stages_in_row(width: int) -> int:
    """How many stages of one column each fit into a row; at least one."""
    return max(1, (width - 2 * SIDE - 2 * _END + SPACE + PILL) // (PILL + MIN_BOX + 2 * SPACE))


def _rows(paths: Paths, width: int) -> list[tuple[int, ...]]:
    """The columns of each row: about as many stages in each, and as many as fit side by side."""
    cuts = (0, *paths.cut_columns, len(paths.columns) - 1)
    stages = len(cuts) - 1
    max_stages = -(-stages // -(-stages // _stages_in_row(width)))
    rows, start = [], 0
    for end in range(1, stages + 1):
        beyond = range(cuts[start], cuts[min(end + 1, stages)] + 1)
        is_full = end - start >= max_stages
        if end == stages or is_full or _total_width(paths, tuple(beyond), MIN_BOX) > width:
            rows.append(tuple(range(cuts[start], cuts[end] + 1)))
            start = end
    return rows


def _column_width(paths: Paths, column: int, box: float) -> float:
    return {"io": IO, "cut": PILL, "op": box}[paths.kind(column)]


def _total_width(paths: Paths, columns: tuple[int, ...], box: float) -> float:
    return (
        2 * SIDE + SPACE * (len(columns) - 1) + sum(_column_width(paths, c, box) for c in columns)
    )


def _box_width(paths: Paths, columns: tuple[int, ...], width: int) -> float:
    """The width of a box with which these columns fill the picture, within its bounds."""
    boxes = max(1, sum(paths.kind(c) == "op" for c in columns))
    return min(max((width - _total_width(paths, columns, 0)) / boxes, MIN_BOX), MAX_BOX)


def _placed(paths: Paths, columns: tuple[int, ...], box: float, width: int, left: bool) -> Row:
    """A single row stands in the middle, rows below each other begin at the left."""
    x = SIDE + (0.0 if left else (width - _total_width(paths, columns, box)) / 2)
    xs = {}
    for column in columns:
        column_width = _column_width(paths, column, box)
        xs[column] = x + column_width / 2
        x += column_width + SPACE
    return Row(columns, xs)
