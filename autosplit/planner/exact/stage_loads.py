"""Loads of all stages between two sets of downsets, block by block.

For downsets A and B with A inside B, and live(X) the tensors made in X and read outside, the stage
B - A costs
    T(B) - T(A) + overhead + send(live(B)) + receive(live(A))
      - sum over t in live(A) and live(B) of send(t), and of receive(t) where A and B hold equally
        many readers of t,
because a tensor live at both is made before the stage, and not read in it when no reader was added.
The last sum is a matrix product over the few tensors that are live somewhere in both sets.

Where several runtimes compete, T(B) - T(A) + overhead is the least of theirs. A runtime does not
count where a border of the stage separates groups that it keeps together: A and B must then hold
the same parts of the same groups.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from autosplit.planner.exact.downset_table import (
    Words,
    chunks,
    live_tensors,
    to_bits,
    to_int,
    to_words,
    weigh,
)
from autosplit.planner.problem.problem import Array, Index, Problem
from autosplit.planner.problem.scaling import ScaledProblem

_BLOCK = 512  # rows of a block: its matrices stay in the cache
_ONE_THREAD = 2**18  # multiplications up to which OpenBLAS starts no threads
_WORD = 0xFFFF_FFFF_FFFF_FFFF
Mask = NDArray[np.bool_]
Counts = NDArray[np.uint16]


@dataclass(frozen=True)
class Block:
    """Loads of a block of pairs, infinite if illegal.

    ``load[i, j]`` is that of the stage from row ``left.start + i`` to row ``right.start + j``.
    """

    left: slice
    right: slice
    load: Array
    pairs: _Pairs

    def bytes_moved(self, i: Index, j: Index) -> Array:
        """Bytes received from other stages by the stages of some pairs of the block."""
        return self.pairs.bytes_moved(self.left, self.right, i, j)

    def memory(self) -> Array:
        """Bytes held by the stages of the block."""
        return self.pairs.memory_of(self.left, self.right)


class Side:
    """Downsets on one side of a stage, with their sums on the stage's device."""

    def __init__(self, scaled: ScaledProblem, words: Words, device: int) -> None:
        self.problem, self.words = scaled.problem, words
        p = scaled.problem
        times = [p.at(runtime.times, device) for runtime in scaled.runtimes]
        over_groups = np.stack([*times, p.sizes], axis=1)
        send, receive = p.at(scaled.send, device), p.at(scaled.receive, device)
        over_live = np.stack([send, receive, p.bytes, p.bytes * p.produced], axis=1)
        inner, border = weigh(p, words, over_groups, over_live)
        *self.times, self.weight_bytes = inner.T
        self.send, self.receive, self.live_bytes, self.produced_bytes = border.T
        self.count = _counts(p, words)

    @cached_property
    def partial(self) -> list[Words | None]:
        """Per runtime and row its groups that are a part of those kept together.

        None for a runtime that can separate all groups.
        """
        return [
            partial_groups(runtime.together, self.words) if runtime.together else None
            for runtime in self.problem.runtimes
        ]

    @cached_property
    def parts(self) -> list[_Part]:
        """The rows in blocks."""
        return [_Part(self.problem, self.words, part) for part in chunks(self.words, _BLOCK)]

    def part(self, rows: slice) -> _Part:
        """The block of some rows."""
        return self.parts[int(rows.start) // _BLOCK]


class _Part:
    """A block of one side: what any and all of its rows hold."""

    def __init__(self, problem: Problem, words: Words, part: slice) -> None:
        self.problem, self.words, self.slice = problem, words[part], part
        self.any = to_int(np.bitwise_or.reduce(self.words, axis=0))
        self.all = to_int(np.bitwise_and.reduce(self.words, axis=0))

    @cached_property
    def live(self) -> dict[int, tuple[NDArray[np.bool_], NDArray[np.uint16]]]:
        """For each tensor live at some row: at which rows, and its readers inside them."""
        tensors = live_tensors(self.problem, to_bits(self.words, self.problem.size))
        columns = {}
        for t in np.flatnonzero(tensors.live.any(axis=0)).tolist():
            columns[t] = tensors.live[:, t].copy(), tensors.readers_inside[:, t].astype(np.uint16)
        return columns


class _Features:
    """0/1 columns for the rows of two blocks, and what each column stands for.

    The product of a column's entries at A and B is 1 where a tensor is live at both, or where it is
    so with equally many readers inside.
    """

    def __init__(self) -> None:
        self.tensors: list[int] = []
        self.kinds: list[tuple[bool, bool]] = []  # live at both ends, not read between them
        self._columns: list[tuple[NDArray[np.bool_], NDArray[np.bool_]]] = []

    def add(self, t: int, live_a: Mask, readers_a: Counts, live_b: Mask, readers_b: Counts) -> None:
        """The columns of a tensor from its liveness and its readers at the rows of both blocks."""
        numbers = set(readers_a[live_a].tolist()), set(readers_b[live_b].tolist())
        # With one number of readers at all rows, of which most tensors have none, both are equal.
        if len(numbers[0] | numbers[1]) == 1:
            self._append(t, (True, True), live_a, live_b)
            return
        self._append(t, (True, False), live_a, live_b)
        for number in numbers[0] & numbers[1]:
            unread = live_a & (readers_a == number), live_b & (readers_b == number)
            self._append(t, (False, True), *unread)

    def _append(self, t: int, kind: tuple[bool, bool], a: Mask, b: Mask) -> None:
        self.tensors.append(t)
        self.kinds.append(kind)
        self._columns.append((a, b))

    @cached_property
    def left(self) -> Array:
        """A row for each row of the block before the stage."""
        return np.array([a for a, _ in self._columns], dtype=np.float64).T

    @cached_property
    def right(self) -> Array:
        """A row for each row of the block after the stage."""
        return np.array([b for _, b in self._columns], dtype=np.float64).T

    def weights(self, live: Array, unread: Array) -> Array:
        """The weight of each column."""
        weights = np.stack([live[self.tensors], unread[self.tensors]], axis=1) * self.kinds
        total: Array = weights.sum(axis=1)
        return total


def _product(left: Array, right: Array) -> Array:
    """``left @ right.T`` in parts that OpenBLAS computes in the calling thread.

    Its threads wait for each other: on a busy machine they take ten times as long.
    """
    product = np.empty((len(left), len(right)))
    rows = max(1, _ONE_THREAD // right.size)
    for part in chunks(left, rows):
        np.matmul(left[part], right.T, out=product[part])
    return product


def _counts(problem: Problem, words: Words) -> NDArray[np.int64]:
    """The number of groups in each row."""
    if hasattr(np, "bitwise_count"):  # numpy 2
        counts: NDArray[np.int64] = np.bitwise_count(words).sum(axis=1)
        return counts
    parts = [to_bits(words[c], problem.size).sum(axis=1, dtype=np.int64) for c in chunks(words)]
    return np.concatenate(parts)


def partial_groups(together: Sequence[int], words: Words) -> Words:
    """Per row the members of those sets ``together`` that it holds a part of.

    No border of a stage between two nested rows separates a set where these are equal.
    """
    partial = np.zeros_like(words)
    for groups in to_words(together, 64 * words.shape[1]):
        inside = words & groups
        some = inside.any(axis=1) & (inside != groups).any(axis=1)
        partial[some] |= inside[some]
    return partial


def differ(left: Words, right: Words) -> NDArray[np.bool_]:
    """For each pair of rows whether they differ."""
    pairs = np.zeros((len(left), len(right)), dtype=bool)
    for a, b in zip(left.T, right.T, strict=True):
        # Most words of partial groups are 0.
        if a.any() or b.any():
            pairs |= a[:, None] != b[None, :]
    return pairs


class _Pairs:
    """The arithmetic of one stage on one device between two sides."""

    def __init__(self, scaled: ScaledProblem, device: int, left: Side, right: Side) -> None:
        p = scaled.problem
        self.problem, self.left, self.right = p, left, right
        self.send, self.receive = p.at(scaled.send, device), p.at(scaled.receive, device)
        self.memory = float(p.memory[device])
        self.memory_binds = self.memory < p.largest_memory
        self.overheads = [float(p.at(r.overheads, device)) for r in scaled.runtimes]
        self.start = [time - left.receive for time in left.times]
        self.end = [
            time + right.send + overhead
            for time, overhead in zip(right.times, self.overheads, strict=True)
        ]
        self.last_features: tuple[tuple[int, int], _Features] | None = None

    def blocks(self, limit: float) -> Iterator[Block]:
        for a in self.left.parts:
            for b in self.right.parts:
                # No pair of the block is nested, or all are too long.
                if a.all & ~b.any or not self._may_fit(a.slice, b.slice, limit):
                    continue
                load = self._least_load(a.slice, b.slice)
                load -= self._staying(a, b, self.send, self.receive)
                load[self._forbidden(a, b)] = math.inf
                yield Block(a.slice, b.slice, load, self)

    def _may_fit(self, a: slice, b: slice, limit: float) -> bool:
        """Whether some pair of the block may be within the limit by its ops alone."""
        least = math.inf
        for left, right, overhead in zip(
            self.left.times, self.right.times, self.overheads, strict=True
        ):
            least = min(least, right[b].min() - left[a].max() + overhead)
        return bool(least <= limit and self.right.count[b].max() > self.left.count[a].min())

    def _least_load(self, a: slice, b: slice) -> Array:
        """The load of each pair in its best runtime, as if no tensor stayed outside."""
        least: Array | None = None
        for r, (start, end) in enumerate(zip(self.start, self.end, strict=True)):
            load = end[None, b] - start[a, None]
            left, right = self.left.partial[r], self.right.partial[r]
            if left is not None and right is not None:
                load[differ(left[a], right[b])] = math.inf
            least = load if least is None else np.minimum(least, load, out=least)
        assert least is not None
        return least

    def _features(self, a: _Part, b: _Part) -> _Features:
        """The columns of both blocks whose products are 1 where a tensor stays outside a stage."""
        key = (a.slice.start, b.slice.start)
        if self.last_features is not None and self.last_features[0] == key:
            return self.last_features[1]
        features = _Features()
        # Only a tensor live on both sides can be live at both ends of a pair.
        for t in a.live.keys() & b.live.keys():
            features.add(t, *a.live[t], *b.live[t])
        self.last_features = (key, features)
        return features

    def _staying(self, a: _Part, b: _Part, live: Array, unread: Array) -> Array | float:
        """Per pair the weights of the tensors live at both ends, and of those not read between."""
        features = self._features(a, b)
        if not features.tensors:
            return 0.0
        return _product(features.left * features.weights(live, unread), features.right)

    def _forbidden(self, a: _Part, b: _Part) -> NDArray[np.bool_]:
        """Pairs that are no stage, and stages that break a constraint on a stage."""
        forbidden = self._illegal(a, b)
        if self.memory_binds:
            forbidden |= self.memory_of(a.slice, b.slice) > self.memory * (1 + 1e-12)
        return forbidden

    def _illegal(self, a: _Part, b: _Part) -> NDArray[np.bool_]:
        """Pairs where A is not inside B or equal to it."""
        count_a, count_b = self.left.count[a.slice], self.right.count[b.slice]
        illegal: NDArray[np.bool_] = count_a[:, None] >= count_b[None, :]
        for word in range(a.words.shape[1]):
            # Only words where some row of A has a group that some row of B has not.
            if (a.any & ~b.all) >> (64 * word) & _WORD:
                illegal |= (a.words[:, word, None] & ~b.words[None, :, word]) != 0
        return illegal

    def memory_of(self, a: slice, b: slice) -> Array:
        left, right = self.left, self.right
        memory: Array = right.weight_bytes[None, b] - left.weight_bytes[a, None]
        if self.problem.costs.activations:
            memory = memory + right.live_bytes[None, b] + left.live_bytes[a, None]
            tensor_bytes = self.problem.bytes
            memory -= self._staying(left.part(a), right.part(b), tensor_bytes, tensor_bytes)
        return memory

    def bytes_moved(self, a: slice, b: slice, i: Index, j: Index) -> Array:
        received: Array = self.left.produced_bytes[a][i]
        features = self._features(self.left.part(a), self.right.part(b))
        if not features.tensors:
            return received
        produced = self.problem.bytes * self.problem.produced
        left = features.left * features.weights(np.zeros_like(produced), produced)
        if 4 * len(i) > len(left) * len(features.right):
            # All pairs at once are quicker; bytes are whole, so sums are exact.
            return received - _product(left, features.right)[i, j]
        staying: Array = (left[i] * features.right[j]).sum(axis=1)
        return received - staying


def loads(
    scaled: ScaledProblem, device: int, left: Side, right: Side, limit: float
) -> Iterator[Block]:
    """All blocks of stages on ``device`` that may have a load within ``limit``."""
    return _Pairs(scaled, device, left, right).blocks(limit)


def load_table(scaled: ScaledProblem, words: Words, device: int) -> Array:
    """The loads of all stages between any two downsets, infinite if illegal, in the cost's unit."""
    side = Side(scaled, words, device)
    table = np.full((len(words), len(words)), math.inf)
    for block in loads(scaled, device, side, side, math.inf):
        table[block.left, block.right] = block.load * scaled.unit
    return table
