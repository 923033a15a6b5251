"""How a split graph is broken into rows: as many columns side by side as can be read, the rest below.

A row ends at a cut, and the next one begins with the same cut: every tensor that goes on stands at the end of one row and
again at the start of the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autosplit.graph import FusedGraph
from autosplit.report.drawing.paths import Paths, trace

SIDE, SPACE = 12, 24  # margins of the picture, distance of its columns, in pixels
IO, PILL = 84, 104  # widths of inputs and outputs, of tensors on a cut
LEAST, MOST = 86, 170  # a box narrower than this cannot hold a name, a wider one only wastes room
_END = PILL + SPACE  # what a row ends with: a cut, or inputs or outputs, which are narrower
_COLUMNS = 10  # boxes side by side in a picture of one row
_DEEP = 8  # columns that a stage may have beyond one when there are several rows


@dataclass(frozen=True)
class Row:
    """Columns that stand side by side, and the centre of each in pixels."""

    columns: tuple[int, ...]
    xs: dict[int, float]


def fitted(graph: FusedGraph, stages: Sequence[Sequence[int]], width: int) -> Paths:
    """The split as columns: as many boxes as leave the picture no more rows of ``width`` pixels than its stages need.

    Raises SplitError where ``stages`` are no split of the graph.
    """
    rows = -(-len(stages) // _stages_in_row(width))
    for boxes in range(_room(len(stages), rows, width), len(stages), -1):
        paths = trace(graph, stages, boxes)
        broken = _broken(paths, width)
        if len(broken) <= rows and all(
            _taken(paths, columns, LEAST) <= width for columns in broken
        ):
            return paths
    return trace(graph, stages, len(stages))


def arrange_rows(paths: Paths, width: int) -> tuple[list[Row], float, int]:
    """The rows, the width of a box in all of them, and the width of the picture, which is ``width`` if anything can be."""
    broken = _broken(paths, width)
    box = min(_box(paths, columns, width) for columns in broken)
    total = max(width, *(int(_taken(paths, columns, box)) for columns in broken))
    return [_row(paths, columns, box, total, len(broken) > 1) for columns in broken], box, total


def _room(stages: int, rows: int, width: int) -> int:
    """How many columns of boxes fit at most."""
    side_by_side = -(-stages // rows)
    free = width - 2 * SIDE - 2 * _END - (side_by_side - 1) * (PILL + SPACE) + SPACE
    fit = min(_COLUMNS, free // (LEAST + SPACE))
    return fit if rows == 1 else min(rows * fit, stages + _DEEP)


def _stages_in_row(width: int) -> int:
    """How many stages of one column each fit into a row; at least one."""
    return max(1, (width - 2 * SIDE - 2 * _END + SPACE + PILL) // (PILL + LEAST + 2 * SPACE))


def _broken(paths: Paths, width: int) -> list[tuple[int, ...]]:
    """The columns of each row: stages side by side while they fit, in as equal a number of stages as that allows."""
    cuts = (0, *paths.cut_columns, len(paths.columns) - 1)
    stages = len(cuts) - 1
    most = -(-stages // -(-stages // _stages_in_row(width)))
    found, start = [], 0
    for end in range(1, stages + 1):
        beyond = range(cuts[start], cuts[min(end + 1, stages)] + 1)
        if end == stages or end - start >= most or _taken(paths, tuple(beyond), LEAST) > width:
            found.append(tuple(range(cuts[start], cuts[end] + 1)))
            start = end
    return found


def _width(paths: Paths, column: int, box: float) -> float:
    return {"io": IO, "cut": PILL, "op": box}[paths.kind(column)]


def _taken(paths: Paths, columns: tuple[int, ...], box: float) -> float:
    return 2 * SIDE + SPACE * (len(columns) - 1) + sum(_width(paths, c, box) for c in columns)


def _box(paths: Paths, columns: tuple[int, ...], width: int) -> float:
    """The width of a box with which these columns fill the picture, between the least and the most."""
    boxes = max(1, sum(paths.kind(c) == "op" for c in columns))
    return min(max((width - _taken(paths, columns, 0)) / boxes, LEAST), MOST)


def _row(paths: Paths, columns: tuple[int, ...], box: float, width: int, left: bool) -> Row:
    """A single row stands in the middle, rows below each other begin at the left."""
    x = SIDE + (0.0 if left else (width - _taken(paths, columns, box)) / 2)
    xs = {}
    for column in columns:
        own = _width(paths, column, box)
        xs[column] = x + own / 2
        x += own + SPACE
    return Row(columns, xs)
