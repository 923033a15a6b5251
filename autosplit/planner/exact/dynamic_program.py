"""The path of least period or least latency: a dynamic program over the layers.

Only the best partial path to each cut is extended (Bellman 1957). Stages are weighed in blocks that
are not stored, so the table may hold a million downsets. A stage above the limit is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autosplit.planner.exact.downset_layers import DownsetLayers
from autosplit.planner.exact.layered_search import Labels, trace
from autosplit.planner.exact.stage_loads import Block
from autosplit.planner.problem.problem import Array, Index

_Update = Callable[["_Best", Block, Array, Array, float], None]


@dataclass(frozen=True)
class _Layer(Labels):
    """The best partial path to each (row of the table, flags).

    ``flags``: the required tensors separated so far; ``first`` and ``second``: the cost up to here.
    """

    flags: NDArray[np.int64]
    first: Array
    second: Array

    def keep(self, where: Index | NDArray[np.bool_]) -> _Layer:
        """Only some of the paths."""
        return _Layer(*(column[where] for column in self.columns()))

    def columns(self) -> tuple[NDArray[Any], ...]:
        """The fields, in their order."""
        return self.node, self.parent, self.flags, self.first, self.second


class _Best:
    """The best partial path so far to each row on the right of a stage."""

    def __init__(self, count: int) -> None:
        self.first = np.full(count, math.inf)
        self.second = np.full(count, math.inf)
        self.parent = np.zeros(count, dtype=np.intp)


def least_period(layers: DownsetLayers, limit: float) -> tuple[float, list[int]] | None:
    """The least period within ``limit`` units and the cuts of a path that has it.

    None where there is no path.

    Raises:
        OutOfTime: The deadline passed.
    """
    paths = _forward(layers, limit, _update_period)
    if paths is None:
        return None
    return float(paths[-1].first[0]), layers.cuts(trace(paths, 0))


def least_latency(
    layers: DownsetLayers, limit: float, latency: float = math.inf
) -> list[int] | None:
    """The cuts of the path of least latency, then bytes moved, with loads within ``limit``.

    Paths above ``latency`` are left out; None where no path is left.

    Raises:
        OutOfTime: The deadline passed.
    """
    paths = _forward(layers, limit, _update_latency, latency)
    return None if paths is None else layers.cuts(trace(paths, 0))


def count_paths(layers: DownsetLayers, limit: float, cap: float) -> float:
    """The number of paths whose loads are all within ``limit``, or ``cap`` where there are more.

    Required tensors are left out of the count.

    Raises:
        OutOfTime: The deadline passed.
    """
    window = layers.windows.rows(limit)
    ways = np.ones(len(window[0]))
    for stage, heads in enumerate(window[1:]):
        tails, after = window[stage], np.zeros(len(heads))
        sides = layers.side(tails, stage), layers.side(heads, stage)
        for block in layers.blocks(stage, *sides, limit):
            after[block.right] += ways[block.left] @ (block.load <= limit)
        if layers.problem.allow_empty:
            idle = layers.idle(tails, heads)
            after[np.searchsorted(heads, tails[idle])] += ways[idle]
        # Numbers of paths grow beyond double precision; more than asked for is enough.
        ways = np.minimum(after, cap)
    return float(ways.sum())


def _forward(
    layers: DownsetLayers, limit: float, update: _Update, latency: float = math.inf
) -> list[_Layer] | None:
    """The layers of partial paths, the best complete one first in the last; None without any."""
    window = layers.windows.rows(limit)
    paths = [_start(window[0])]
    for stage, heads in enumerate(window[1:]):
        if not len(paths[-1].node):
            return None
        layer = _extended(layers, paths[-1], heads, stage, limit, update)
        # What cannot get within the latency any more is dropped (A* bound).
        if latency < math.inf:
            rest = layers.windows.rest(layer.node, stage + 1)
            layer = layer.keep(layer.first + rest <= latency)
        paths.append(layer)
    last = paths[-1]
    complete = np.flatnonzero(last.flags == layers.every_flag)
    if not len(complete):
        return None
    order = np.lexsort((last.second[complete], last.first[complete]))
    paths[-1] = last.keep(complete[order])
    return paths


def _extended(
    layers: DownsetLayers, before: _Layer, heads: Index, stage: int, limit: float, update: _Update
) -> _Layer:
    """The layer after a stage."""
    right = layers.side(heads, stage)
    parts = []
    # Paths that separated different required tensors are not comparable.
    for flag in np.unique(before.flags):
        same = np.flatnonzero(before.flags == flag)
        left = layers.side(before.node[same], stage)
        best = _Best(len(heads))
        for block in layers.blocks(stage, left, right, limit):
            update(best, block, before.first[same], before.second[same], limit)
        reached = np.flatnonzero(best.first < math.inf)
        parts.append(
            _Layer(
                heads[reached],
                same[best.parent[reached]],
                flag | layers.flags(heads[reached]),
                best.first[reached],
                best.second[reached],
            )
        )
    if layers.problem.allow_empty:
        # A stage stays empty: the same cut again, at no cost.
        place = np.flatnonzero(np.isin(before.node, heads))
        idle = before.keep(place)
        parts.append(replace(idle, parent=place))
    return parts[0] if len(parts) == 1 else _best_of(parts)


def _update_period(best: _Best, block: Block, first: Array, second: Array, limit: float) -> None:
    value = np.maximum(block.load, first[block.left, None])
    parent = value.argmin(axis=0)
    least = value[parent, np.arange(value.shape[1])]
    better = np.flatnonzero((least < best.first[block.right]) & (least <= limit))
    at = block.right.start + better
    best.first[at], best.second[at] = least[better], 0.0
    best.parent[at] = block.left.start + parent[better]


def _update_latency(best: _Best, block: Block, first: Array, second: Array, limit: float) -> None:
    value = block.load
    value[value > limit] = math.inf
    value += first[block.left, None]
    least = value.min(axis=0)
    i, j = np.nonzero((value == least) & (least < math.inf) & (least <= best.first[block.right]))
    if not len(i):
        return
    # Among equal latencies the fewest bytes moved win, for each row on the right.
    bytes_moved = second[block.left][i] + block.bytes_moved(i, j)
    order = np.lexsort((bytes_moved, j))
    winner = order[np.unique(j[order], return_index=True)[1]]
    i, j, bytes_moved = i[winner], j[winner], bytes_moved[winner]
    at = block.right.start + j
    better = (least[j] < best.first[at]) | (bytes_moved < best.second[at])
    at, i, j, bytes_moved = at[better], i[better], j[better], bytes_moved[better]
    best.first[at], best.second[at] = least[j], bytes_moved
    best.parent[at] = block.left.start + i


def _start(rows: Index) -> _Layer:
    """The layer of the empty cut."""
    zero = np.zeros(len(rows))
    return _Layer(rows, zero.astype(np.intp), zero.astype(np.int64), zero, zero)


def _best_of(parts: list[_Layer]) -> _Layer:
    """One layer with the best path to each (row, flags), in the order of the table."""
    columns = zip(*(part.columns() for part in parts), strict=True)
    joined = _Layer(*map(np.concatenate, columns))
    # The best of each (row, flags) comes first.
    order = np.lexsort((joined.second, joined.first, joined.flags, joined.node))
    changed = np.ones(len(order), dtype=bool)
    changed[1:] = (np.diff(joined.node[order]) != 0) | (np.diff(joined.flags[order]) != 0)
    return joined.keep(order[changed])
