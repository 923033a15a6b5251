"""The best chain of nested downsets among given ones: a dynamic programme over levels 0..K.

Level k holds the cuts before stage k. A cut at level k is looked at only where the stages before it and those after it
can both stay within the limit; the limit starts at the bound and doubles its distance from it until a chain fits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autosplit.planner.exact.downset_table import Words, chunks, live_tensors, to_bits, to_int
from autosplit.planner.exact.stage_loads import Block, Side, loads
from autosplit.planner.exact.windows import Windows
from autosplit.planner.problem.problem import Array, Deadline, OutOfTime, Scaled

Index = NDArray[np.intp]
_Combine = Callable[["_Best", Block, Array, Array, float], None]


@dataclass(frozen=True)
class Layer:
    """The cuts kept at one level: ``rows`` of the table, ``flags``: which required tensors they have separated so far,
    ``first`` and ``second``: the best cost up to here, ``parent``: the place in the layer before.
    """

    rows: Index
    flags: NDArray[np.int64]
    first: Array
    second: Array
    parent: Index

    def keep(self, where: Index | NDArray[np.bool_]) -> Layer:
        """Only some of the cuts."""
        return Layer(
            self.rows[where],
            self.flags[where],
            self.first[where],
            self.second[where],
            self.parent[where],
        )


class Chain:
    """The search over one table of downsets; ``words`` must hold the empty and the full one."""

    def __init__(self, scaled: Scaled, words: Words, deadline: Deadline | None = None) -> None:
        self.scaled, self.problem, self.deadline = scaled, scaled.problem, deadline
        self.windows = Windows(scaled, words, deadline)
        self.words = self.windows.words

    def bound(self) -> float:
        """No chain of these downsets has a smaller period (in units)."""
        return self.windows.bound()

    def least_period(self, limit: float) -> tuple[float, list[int]] | None:
        """The smallest period within ``limit`` and a chain of row bitsets that has it; None where there is none.

        Raises OutOfTime.
        """
        layers = self._forward(limit, _by_period)
        return None if layers is None else (float(layers[-1].first[0]), self._trace(layers))

    def least_latency(
        self, limit: float, latency: float = math.inf
    ) -> tuple[float, float, list[int]] | None:
        """The least latency, then bytes moved, among chains whose loads are within ``limit``; ``latency`` bounds it.

        Raises OutOfTime.
        """
        layers = self._forward(limit, _by_latency, latency)
        if layers is None:
            return None
        return float(layers[-1].first[0]), float(layers[-1].second[0]), self._trace(layers)

    def _forward(
        self, limit: float, combine: _Combine, latency: float = math.inf
    ) -> list[Layer] | None:
        levels = self.windows.levels(limit)
        layers = [_start(levels[0])]
        for k in range(1, self.problem.stages + 1):
            if not len(layers[-1].rows):
                return None
            layer = self._step(layers[-1], levels[k], k, limit, combine)
            if latency < math.inf:
                rest = self.windows.rest(layer.rows, k)
                layer = layer.keep(layer.first + rest <= latency)
            layers.append(layer)
        last = layers[-1]
        done = np.flatnonzero(last.flags == (1 << len(self.problem.required)) - 1)
        if not len(done):
            return None
        layers[-1] = last.keep(done[np.lexsort((last.second[done], last.first[done]))])
        return layers

    def _step(self, before: Layer, rows: Index, k: int, limit: float, combine: _Combine) -> Layer:
        """The layer at level k from the one before it."""
        right = Side(self.scaled, self.words[rows], k - 1)
        found = []
        for flag in np.unique(before.flags):
            part = np.flatnonzero(before.flags == flag)
            left = Side(self.scaled, self.words[before.rows[part]], k - 1)
            best = _Best(len(rows))
            for block in loads(self.scaled, k - 1, left, right, limit):
                if self.deadline is not None and self.deadline():
                    raise OutOfTime
                combine(best, block, before.first[part], before.second[part], limit)
            kept = np.flatnonzero(best.first < math.inf)
            flags = flag | self.separated(rows[kept])
            found.append(
                Layer(
                    rows[kept], flags, best.first[kept], best.second[kept], part[best.parent[kept]]
                )
            )
        if self.problem.allow_empty:
            found.append(_idle(before, rows))
        return _merged(found)

    def separated(self, rows: Index) -> NDArray[np.int64]:
        """Which required tensors are live at some rows, a bit each."""
        flags = np.zeros(len(rows), dtype=np.int64)
        if self.problem.required:
            words = self.words[rows]
            for part in chunks(words):
                live = live_tensors(self.problem, to_bits(words[part], self.problem.size)).live
                for bit, t in enumerate(self.problem.required):
                    flags[part] |= live[:, t].astype(np.int64) << bit
        return flags

    def _trace(self, layers: list[Layer]) -> list[int]:
        """The cuts of the best chain, as bitsets of groups."""
        place, cuts = 0, []
        for layer in reversed(layers[1:]):
            cuts.append(to_int(self.words[layer.rows[place]]))
            place = int(layer.parent[place])
        return cuts[:0:-1]


class _Best:
    """The best chain found so far to each row on the right."""

    def __init__(self, count: int) -> None:
        self.first = np.full(count, math.inf)
        self.second = np.full(count, math.inf)
        self.parent = np.zeros(count, dtype=np.intp)


def _by_period(best: _Best, block: Block, first: Array, second: Array, limit: float) -> None:
    value = np.maximum(block.load, first[block.left, None])
    parent = value.argmin(axis=0)
    least = value[parent, np.arange(value.shape[1])]
    better = np.flatnonzero((least < best.first[block.right]) & (least <= limit))
    at = block.right.start + better
    best.first[at], best.second[at] = least[better], 0.0
    best.parent[at] = block.left.start + parent[better]


def _by_latency(best: _Best, block: Block, first: Array, second: Array, limit: float) -> None:
    value = block.load
    value[value > limit] = math.inf
    value += first[block.left, None]
    least = value.min(axis=0)
    i, j = np.nonzero((value == least) & (least < math.inf) & (least <= best.first[block.right]))
    if not len(i):
        return
    moved = second[block.left][i] + block.bytes_moved(i, j)
    order = np.lexsort((moved, j))
    once = order[np.unique(j[order], return_index=True)[1]]
    i, j, moved = i[once], j[once], moved[once]
    at = block.right.start + j
    better = (least[j] < best.first[at]) | (moved < best.second[at])
    at, i, j, moved = at[better], i[better], j[better], moved[better]
    best.first[at], best.second[at] = least[j], moved
    best.parent[at] = block.left.start + i


def _start(rows: Index) -> Layer:
    """The layer of the empty cut."""
    count = len(rows)
    return Layer(
        rows,
        np.zeros(count, dtype=np.int64),
        np.zeros(count),
        np.zeros(count),
        np.zeros(count, dtype=np.intp),
    )


def _idle(before: Layer, rows: Index) -> Layer:
    """The chains that leave a stage empty: the same cut again, where the next level allows it."""
    place = np.flatnonzero(np.isin(before.rows, rows))
    return Layer(
        before.rows[place], before.flags[place], before.first[place], before.second[place], place
    )


def _merged(found: list[Layer]) -> Layer:
    """One layer with the best of each (cut, flags), in the order of the table."""
    if len(found) == 1:
        return found[0]
    rows, flags, first, second, parent = (
        np.concatenate([getattr(layer, name) for layer in found])
        for name in ("rows", "flags", "first", "second", "parent")
    )
    order = np.lexsort((second, first, flags, rows))
    changed = np.ones(len(order), dtype=bool)
    changed[1:] = (np.diff(rows[order]) != 0) | (np.diff(flags[order]) != 0)
    kept = order[changed]
    return Layer(rows[kept], flags[kept], first[kept], second[kept], parent[kept])
