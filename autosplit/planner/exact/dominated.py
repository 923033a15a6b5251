"""Dominated cuts: those that another cut of their layer can replace in every split.

A group is *free* at layer k if no cut of the layer before holds it and every cut of the layer after
does. Two cuts of layer k that differ in free groups alone change only the two stages beside them.
If with the first cut neither stage takes longer than with the second, the second is not needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autosplit.planner.exact.downset_layers import DownsetLayers
from autosplit.planner.exact.downset_table import to_int, to_words
from autosplit.planner.problem.problem import Index, Problem

_FEW = 512  # rows of a layer that are searched as soon as they are sorted


def undominated(layers: DownsetLayers, limit: float, few: int = _FEW) -> list[Index]:
    """The rows of ``Windows.rows`` without dominated ones.

    For each path within the limit there is one through the remaining rows in which no load is
    larger; with the same loads it moves no more bytes. Layers of up to ``few`` rows stay as they
    are.
    """
    longest, rows = layers.useful_rows
    if limit <= longest:
        # The replacements are no longer than what they replace, so they are within any limit.
        return layers.windows.among(rows, limit)
    window, p = layers.windows.rows(limit), layers.problem
    # A longer stage may be the one that fits its memory, or has the runtime of its groups.
    if len(p.runtimes) > 1 or p.required or p.memory.min() < p.largest_memory:
        return window
    for k in range(1, p.stages):
        # Without the dominated rows of the layer before, more groups are free.
        if len(window[k]) > few and len(window[k - 1]) and len(window[k + 1]):
            window[k] = _undominated(layers, k, *window[k - 1 : k + 2])
    layers.useful_rows = limit, window
    return window


def _undominated(layers: DownsetLayers, k: int, before: Index, rows: Index, after: Index) -> Index:
    left = layers.side(rows, k - 1)
    right = left if layers.problem.uniform else layers.side(rows, k)
    # The parts of both loads that depend on which free groups the cut holds.
    longer, shorter = left.times[0] + left.send, right.times[0] - right.receive
    class_of = _classes(layers, before, rows, after)
    order = np.lexsort((left.produced_bytes, -shorter, longer, class_of))
    # A later class is above all of an earlier one.
    value = (class_of * len(rows) + _number(shorter))[order]
    best = np.maximum.accumulate(value)
    # Each row left out comes after one of its class that is at least as good in both loads. If that
    # one is better in one, its paths have less latency; if it is equal, they move no more bytes.
    return np.sort(rows[order[np.diff(best, prepend=-1) > 0]])


def _classes(layers: DownsetLayers, before: Index, rows: Index, after: Index) -> Index:
    """A number for each row: equal only for cuts that differ in free groups alone."""
    p, words = layers.problem, layers.words[rows]
    possible = to_int(np.bitwise_or.reduce(layers.words[before], axis=0))
    certain = to_int(np.bitwise_and.reduce(layers.words[after], axis=0))
    free = _free_groups(p, possible, certain)
    columns = [*(words & ~to_words([free], p.size)).T]
    for t, producer in enumerate(p.producer):
        readers = p.consumers[t] & free
        # Which stages receive it depends on whether the cut holds some, or all, of its readers.
        if readers and not (producer >= 0 and free >> producer & 1):
            mask = to_words([readers], p.size)[0]
            used = np.flatnonzero(mask)
            inside = words[:, used] & mask[used]
            columns += [inside.any(axis=1), (inside == mask[used]).all(axis=1)]
    class_of = np.zeros(len(rows), dtype=np.intp)
    for column in columns:
        if (column != column[0]).any():
            class_of = _number(class_of * len(rows) + _number(column))
    # Rows of a layer beside this one stay, because an empty stage needs the same row twice.
    again = np.isin(rows, before) | np.isin(rows, after)
    class_of[again] = len(rows) + np.flatnonzero(again)
    return class_of


def _number(values: NDArray[Any]) -> Index:
    """For each value its place among the distinct ones."""
    places: Index = np.unique(values, return_inverse=True)[1].reshape(-1)
    return places


def _free_groups(problem: Problem, possible: int, certain: int) -> int:
    """The groups outside every cut before and inside every cut after, with all that read them."""
    free = certain & ~possible
    for producer, readers in zip(problem.producer, problem.consumers, strict=True):
        if producer >= 0 and readers & ~certain:
            free &= ~(1 << producer)
    return free
