"""Where boxes go in their levels: few crossings, short edges.

The steps are those of Sugiyama, Tagawa and Toda, "Methods for Visual Understanding of Hierarchical
System Structures" (1981). The levels come from the caller. Barycentre sweeps order each level.
Then boxes move as close to their neighbours as the order and the gaps allow: least squares under an
order, solved by pooling adjacent violators.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)
Edge = tuple[Node, Node]

_SWEEPS = 8


def arrange(
    levels: Sequence[Sequence[Node]],
    edges: Iterable[Edge[Node]],
    widths: Mapping[Node, float],
    gap: float,
) -> dict[Node, float]:
    """The horizontal centre of every node, the leftmost edge at 0.

    ``edges`` lead to the next level; nodes of a level are at least ``gap`` apart.
    """
    before: dict[Node, list[Node]] = {n: [] for level in levels for n in level}
    after: dict[Node, list[Node]] = {n: [] for n in before}
    for a, b in edges:
        after[a].append(b)
        before[b].append(a)
    ordered = [list(level) for level in levels]
    _order(ordered, before, after)
    return _place(ordered, before, after, widths, gap)


def _order(
    levels: list[list[Node]],
    before: Mapping[Node, Sequence[Node]],
    after: Mapping[Node, Sequence[Node]],
) -> None:
    """Order each level by barycentre sweeps: a node goes to the mean place of its neighbours."""
    downwards = [(level, -1, before) for level in range(1, len(levels))]
    upwards = [(level, 1, after) for level in range(len(levels) - 2, -1, -1)]
    for level, step, neighbours in (downwards + upwards) * (_SWEEPS // 2):
        fixed = _relative_places(levels[level + step])
        places = _relative_places(levels[level])
        mean = {n: _mean([fixed[m] for m in neighbours[n]], places[n]) for n in places}
        levels[level].sort(key=mean.__getitem__)


def _relative_places(level: Sequence[Node]) -> dict[Node, float]:
    return {n: i / max(len(level) - 1, 1) for i, n in enumerate(level)}


def _place(
    levels: Sequence[Sequence[Node]],
    before: Mapping[Node, Sequence[Node]],
    after: Mapping[Node, Sequence[Node]],
    widths: Mapping[Node, float],
    gap: float,
) -> dict[Node, float]:
    """The centres: sweeps draw every node towards the mean of its neighbours."""
    x: dict[Node, float] = {}
    for level in levels:
        x.update(_spaced(level, [0.0] * len(level), widths, gap))
    for sweep in range(2 * _SWEEPS):
        for level in levels if sweep % 2 == 0 else reversed(levels):
            # A node without neighbours stays where it is.
            targets = [_mean([x[m] for m in (*before[n], *after[n])], x[n]) for n in level]
            x.update(_spaced(level, targets, widths, gap))
    left = min((x[n] - widths[n] / 2 for n in x), default=0.0)
    return {n: centre - left for n, centre in x.items()}


def _spaced(
    level: Sequence[Node], targets: Sequence[float], widths: Mapping[Node, float], gap: float
) -> dict[Node, float]:
    """The centres nearest to the targets, in least squares, in this order and ``gap`` apart."""
    offsets = [0.0]
    for left, right in pairwise(level):
        offsets.append(offsets[-1] + (widths[left] + widths[right]) / 2 + gap)
    # Without the offsets the centres must not fall: neighbours that would are pooled at their mean.
    pools: list[tuple[float, int]] = []  # mean and size
    for target, offset in zip(targets, offsets, strict=False):
        mean, count = target - offset, 1
        while pools and pools[-1][0] > mean:
            other, more = pools.pop()
            mean, count = (mean * count + other * more) / (count + more), count + more
        pools.append((mean, count))
    means = [mean for mean, count in pools for _ in range(count)]
    return {n: mean + offset for n, mean, offset in zip(level, means, offsets, strict=False)}


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
