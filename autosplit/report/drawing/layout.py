"""Where boxes go: columns from left to right, few crossings, short edges.

The steps are those of Sugiyama, Tagawa and Toda, "Methods for Visual Understanding of Hierarchical
System Structures" (1981). The columns come from the caller. Barycentre sweeps order each column.
Then boxes move as close to their neighbours as the order and the gaps allow: least squares under an
order, solved by pooling adjacent violators.
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
    """The vertical centre of every node, the uppermost edge at 0.

    ``edges`` lead to the next column; nodes of a column are at least ``gap`` apart.
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
        # Two edges cross where their ends are in opposite orders.
        joined = [(i, place[b]) for i, a in enumerate(left) for b in after[a]]
        count += sum((a[0] - b[0]) * (a[1] - b[1]) < 0 for a, b in combinations(joined, 2))
    return count


def _order(
    columns: list[list[Node]],
    before: Mapping[Node, Sequence[Node]],
    after: Mapping[Node, Sequence[Node]],
) -> list[list[Node]]:
    """The best order of barycentre sweeps: each node goes to the mean place of its neighbours."""
    best, fewest = [list(c) for c in columns], crossings(columns, after)
    for sweep in range(_SWEEPS):
        # Downwards by what is before a node, upwards by what comes after it, in turn.
        if sweep % 2 == 0:
            order, step, neighbours = range(1, len(columns)), -1, before
        else:
            order, step, neighbours = range(len(columns) - 2, -1, -1), 1, after
        for column in order:
            fixed = _relative_places(columns[column + step])
            places = _relative_places(columns[column])
            mean = {n: _mean([fixed[m] for m in neighbours[n]], places[n]) for n in places}
            columns[column].sort(key=mean.__getitem__)
        count = crossings(columns, after)
        # A sweep may make it worse, so the best order is remembered.
        if count < fewest:
            best, fewest = [list(c) for c in columns], count
    return best


def _relative_places(column: Sequence[Node]) -> dict[Node, float]:
    return {n: i / max(len(column) - 1, 1) for i, n in enumerate(column)}


def _place(
    columns: Sequence[Sequence[Node]],
    before: Mapping[Node, Sequence[Node]],
    after: Mapping[Node, Sequence[Node]],
    heights: Mapping[Node, float],
    gap: float,
) -> dict[Node, float]:
    """The centres: sweeps draw every node towards the mean of its neighbours."""
    y: dict[Node, float] = {}
    for column in columns:
        y.update(_spaced(column, [0.0] * len(column), heights, gap))
    for sweep in range(2 * _SWEEPS):
        for column in columns if sweep % 2 == 0 else reversed(columns):
            # A node without neighbours stays where it is.
            targets = [_mean([y[m] for m in (*before[n], *after[n])], y[n]) for n in column]
            y.update(_spaced(column, targets, heights, gap))
    top = min((y[n] - heights[n] / 2 for n in y), default=0.0)
    return {n: centre - top for n, centre in y.items()}


def _spaced(
    column: Sequence[Node], targets: Sequence[float], heights: Mapping[Node, float], gap: float
) -> dict[Node, float]:
    """The centres nearest to the targets, in least squares, in this order and ``gap`` apart."""
    offsets = [0.0]
    for above, below in pairwise(column):
        offsets.append(offsets[-1] + (heights[above] + heights[below]) / 2 + gap)
    # Without the offsets the centres must not fall: neighbours that would are pooled at their mean.
    pools: list[tuple[float, int]] = []  # mean and size
    for target, offset in zip(targets, offsets, strict=False):
        mean, count = target - offset, 1
        while pools and pools[-1][0] > mean:
            other, more = pools.pop()
            mean, count = (mean * count + other * more) / (count + more), count + more
        pools.append((mean, count))
    means = [mean for mean, count in pools for _ in range(count)]
    return {n: mean + offset for n, mean, offset in zip(column, means, offsets, strict=False)}


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
