"""Where boxes go: columns from left to right, few crossings, short edges.

The steps of Sugiyama, Tagawa and Toda, "Methods for Visual Understanding of Hierarchical System Structures" (1981):
columns are given, order within a column by barycentre sweeps, then heights as close to the neighbours' as the order and
the gaps allow (least squares under an order, solved by pooling adjacent violators).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import combinations, pairwise
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)
Edge = tuple[Node, Node]

_SWEEPS = 8


def arrange(
    columns: Sequence[Sequence[Node]],
    edges: Iterable[Edge[Node]],
    heights: Mapping[Node, float],
    gap: float,
) -> dict[Node, float]:
    """The vertical centre of every node, the uppermost edge at 0; no two nodes of a column closer than ``gap``.

    ``edges`` join nodes of neighbouring columns, left to right; ``heights`` are the nodes' own heights, same unit.
    """
    before: dict[Node, list[Node]] = {n: [] for column in columns for n in column}
    after: dict[Node, list[Node]] = {n: [] for n in before}
    for a, b in edges:
        after[a].append(b)
        before[b].append(a)
    ordered = _order([list(column) for column in columns], before, after)
    return _place(ordered, before, after, heights, gap)


def crossings(columns: Sequence[Sequence[Node]], after: Mapping[Node, Sequence[Node]]) -> int:
    """How many pairs of edges between neighbouring columns cross in this order."""
    count = 0
    for left, right in pairwise(columns):
        place = {n: i for i, n in enumerate(right)}
        joined = [(i, place[b]) for i, a in enumerate(left) for b in after[a]]
        count += sum((a[0] - b[0]) * (a[1] - b[1]) < 0 for a, b in combinations(joined, 2))
    return count


def _order(
    columns: list[list[Node]],
    before: Mapping[Node, Sequence[Node]],
    after: Mapping[Node, Sequence[Node]],
) -> list[list[Node]]:
    best, fewest = [list(c) for c in columns], crossings(columns, after)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for column in range(1, len(columns)) if down else range(len(columns) - 2, -1, -1):
            fixed = columns[column - 1 if down else column + 1]
            place = {n: i / max(len(fixed) - 1, 1) for i, n in enumerate(fixed)}
            own = {n: i / max(len(columns[column]) - 1, 1) for i, n in enumerate(columns[column])}
            near = before if down else after
            columns[column].sort(key=lambda n: _mean([place[m] for m in near[n]], own[n]))
        if (count := crossings(columns, after)) < fewest:
            best, fewest = [list(c) for c in columns], count
    return best


def _place(
    columns: Sequence[Sequence[Node]],
    before: Mapping[Node, Sequence[Node]],
    after: Mapping[Node, Sequence[Node]],
    heights: Mapping[Node, float],
    gap: float,
) -> dict[Node, float]:
    y: dict[Node, float] = {}
    for column in columns:
        wanted = [0.0] * len(column)
        y.update(zip(column, _apart(wanted, [heights[n] for n in column], gap), strict=True))
    for sweep in range(2 * _SWEEPS):
        for column in columns if sweep % 2 == 0 else reversed(columns):
            wanted = [_mean([y[m] for m in (*before[n], *after[n])], y[n]) for n in column]
            y.update(zip(column, _apart(wanted, [heights[n] for n in column], gap), strict=True))
    top = min((y[n] - heights[n] / 2 for n in y), default=0.0)
    return {n: value - top for n, value in y.items()}


def _apart(wanted: Sequence[float], heights: Sequence[float], gap: float) -> list[float]:
    """The centres nearest to those wanted, in least squares, in the given order and ``gap`` apart."""
    offsets = [0.0]
    for a, b in pairwise(heights):
        offsets.append(offsets[-1] + (a + b) / 2 + gap)
    blocks: list[tuple[float, int]] = []  # mean of the wanted starts, how many nodes
    for target, offset in zip(wanted, offsets, strict=False):
        mean, count = target - offset, 1
        while blocks and blocks[-1][0] > mean:
            other, more = blocks.pop()
            mean, count = (mean * count + other * more) / (count + more), count + more
        blocks.append((mean, count))
    starts = [mean for mean, count in blocks for _ in range(count)]
    return [start + offset for start, offset in zip(starts, offsets, strict=False)]


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
