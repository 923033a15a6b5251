"""Loads of all stages between two sets of downsets, block by block.

For downsets A and B with A inside B, and live(X) the tensors made in X and read outside, the stage B - A costs
    T(B) - T(A) + overhead + send(live(B)) + receive(live(A))
      - sum over t in live(A) and live(B) of send(t), and of receive(t) where A and B hold equally many readers of t,
because a tensor live at both is made before the stage, and not read in it when no reader was added. The last sum is a
matrix product over the few tensors that are live somewhere in both sets.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
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
    weigh,
)
from autosplit.planner.problem.problem import Array, Problem, Scaled

_BLOCK = 512
_Features = tuple[Array, Array, NDArray[np.intp]]


@dataclass(frozen=True)
class Block:
    """Loads of a block of pairs: ``load[i, j]`` from row ``left.start + i`` to ``right.start + j``, infinite if
    illegal.
    """

    left: slice
    right: slice
    load: Array
    pairs: _Pairs

    def bytes_moved(self, i: NDArray[np.intp], j: NDArray[np.intp]) -> Array:
        """Bytes received by the stages of some pairs of the block, for those made by ops."""
        return self.pairs.moved(self.left, self.right, i, j)

    def memory(self) -> Array:
        """Bytes held by the stages of the block."""
        return self.pairs.memory_block(self.left, self.right)


class Side:
    """Downsets on one side of a stage, with what the stage's device makes of them."""

    def __init__(self, scaled: Scaled, words: Words, device: int) -> None:
        self.problem, self.words = scaled.problem, words
        p = scaled.problem
        own = np.array([0.0 if maker < 0 else 1.0 for maker in p.producer])
        over_groups = np.stack([p.at(scaled.times, device), p.sizes], axis=1)
        over_live = np.stack(
            [p.at(scaled.send, device), p.at(scaled.receive, device), p.bytes, p.bytes * own],
            axis=1,
        )
        inner, border = weigh(p, words, over_groups, over_live)
        self.time, self.weight = inner.T
        self.send, self.receive, self.bytes, self.own_bytes = border.T
        self.count = (
            np.bitwise_count(words).sum(axis=1)
            if hasattr(np, "bitwise_count")
            else _popcount(p, words)
        )

    @cached_property
    def parts(self) -> list[_Part]:
        """The rows in blocks."""
        return [_Part(self.problem, self.words, part) for part in chunks(self.words, _BLOCK)]


class _Part:
    """A block of one side: what any and all of its rows hold."""

    def __init__(self, problem: Problem, words: Words, part: slice) -> None:
        self.problem, self.words, self.slice = problem, words[part], part
        self.any = to_int(np.bitwise_or.reduce(self.words, axis=0))
        self.all = to_int(np.bitwise_and.reduce(self.words, axis=0))

    @cached_property
    def live(self) -> dict[int, tuple[NDArray[np.bool_], NDArray[np.uint16]]]:
        """For each tensor that is live at some row: at which rows, and its readers inside them."""
        found = live_tensors(self.problem, to_bits(self.words, self.problem.size))
        some = np.flatnonzero(found.live.any(axis=0))
        return {
            int(t): (found.live[:, t].copy(), found.inside[:, t].astype(np.uint16)) for t in some
        }


def _popcount(problem: Problem, words: Words) -> NDArray[np.int64]:
    return np.concatenate(
        [to_bits(words[c], problem.size).sum(axis=1, dtype=np.int64) for c in chunks(words)]
    )


class _Pairs:
    """The arithmetic of one stage on one device between two sides."""

    def __init__(self, scaled: Scaled, device: int, left: Side, right: Side) -> None:
        p = scaled.problem
        self.problem, self.left, self.right = p, left, right
        self.send, self.receive = p.at(scaled.send, device), p.at(scaled.receive, device)
        self.overhead = float(scaled.overheads[device if len(scaled.overheads) > 1 else 0])
        self.memory = float(p.memory[device])
        most = p.sizes.sum() + (2 * p.bytes.sum() if p.costs.activations else 0.0)
        self.memory_binds = self.memory < most
        self.start = left.time - left.receive
        self.end = right.time + right.send + self.overhead
        self.feature: tuple[tuple[int, int], _Features] | None = None

    def blocks(self, limit: float) -> Iterator[Block]:
        for a in self.left.parts:
            for b in self.right.parts:
                if a.all & ~b.any or not self._may(a.slice, b.slice, limit):
                    continue
                load = self.end[None, b.slice] - self.start[a.slice, None]
                left, right, tensors = self.features(a, b)
                if len(tensors):
                    load -= (left * self.weights(tensors, self.send, self.receive)) @ right.T
                load[self._illegal(a, b)] = math.inf
                if self.memory_binds:
                    load[self.memory_block(a.slice, b.slice) > self.memory * (1 + 1e-12)] = math.inf
                yield Block(a.slice, b.slice, load, self)

    def _may(self, a: slice, b: slice, limit: float) -> bool:
        """Whether some pair of the block may stay within the limit: its ops alone cost the difference of times."""
        return bool(
            self.right.time[b].min() - self.left.time[a].max() + self.overhead <= limit
            and self.right.count[b].max() > self.left.count[a].min()
        )

    def features(self, a: _Part, b: _Part) -> _Features:
        """0/1 columns for both blocks and the signed tensor of each: t for "live", -1-t for "live with r readers
        inside".
        """
        key = (a.slice.start, b.slice.start)
        if self.feature is not None and self.feature[0] == key:
            return self.feature[1]
        left, right, tensors = [], [], []
        for t in a.live.keys() & b.live.keys():
            (live_a, readers_a), (live_b, readers_b) = a.live[t], b.live[t]
            left.append(live_a)
            right.append(live_b)
            tensors.append(t)
            for r in np.intersect1d(readers_a[live_a], readers_b[live_b]):
                left.append(live_a & (readers_a == r))
                right.append(live_b & (readers_b == r))
                tensors.append(-1 - t)
        found = (
            np.array(left, dtype=np.float64).reshape(len(left), len(a.words)).T,
            np.array(right, dtype=np.float64).reshape(len(right), len(b.words)).T,
            np.array(tensors, dtype=np.intp),
        )
        self.feature = (key, found)
        return found

    @staticmethod
    def weights(tensors: NDArray[np.intp], live: Array, unread: Array) -> Array:
        """The weight of each feature column."""
        return np.where(
            tensors >= 0, live[np.maximum(tensors, 0)], unread[np.maximum(-1 - tensors, 0)]
        )

    def _illegal(self, a: _Part, b: _Part) -> NDArray[np.bool_]:
        """Pairs where A is not inside B or equal to it."""
        count_a, count_b = self.left.count[a.slice], self.right.count[b.slice]
        illegal: NDArray[np.bool_] = count_a[:, None] >= count_b[None, :]
        for word in range(a.words.shape[1]):
            shift = 64 * word
            if (a.any & ~b.all) >> shift & 0xFFFF_FFFF_FFFF_FFFF:
                illegal |= (a.words[:, word, None] & ~b.words[None, :, word]) != 0
        return illegal

    def memory_block(self, a: slice, b: slice) -> Array:
        held: Array = self.right.weight[None, b] - self.left.weight[a, None]
        if self.problem.costs.activations:
            held = held + self.right.bytes[None, b] + self.left.bytes[a, None]
            left, right, tensors = self.features(
                self._part(self.left, a), self._part(self.right, b)
            )
            if len(tensors):
                held -= (
                    left * self.weights(tensors, self.problem.bytes, self.problem.bytes)
                ) @ right.T
        return held

    def moved(self, a: slice, b: slice, i: NDArray[np.intp], j: NDArray[np.intp]) -> Array:
        left, right, tensors = self.features(self._part(self.left, a), self._part(self.right, b))
        own = (
            np.array([0.0 if maker < 0 else 1.0 for maker in self.problem.producer])
            * self.problem.bytes
        )
        weights = self.weights(tensors, np.zeros_like(own), own)
        if 4 * len(i) > len(left) * len(
            right
        ):  # all pairs at once are quicker; bytes are whole, so sums are exact
            staying: Array = ((left * weights) @ right.T)[i, j]
        else:
            staying = ((left[i] * weights) * right[j]).sum(axis=1)
        found: Array = self.left.own_bytes[a][i] - staying
        return found

    @staticmethod
    def _part(side: Side, part: slice) -> _Part:
        return side.parts[int(part.start) // _BLOCK]


def loads(scaled: Scaled, device: int, left: Side, right: Side, limit: float) -> Iterator[Block]:
    """All blocks of stages on ``device`` that hold a load within ``limit``; blocks that cannot are left out."""
    return _Pairs(scaled, device, left, right).blocks(limit)
