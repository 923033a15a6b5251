"""Which downsets can be the cut at layer k of a path whose loads stay within a limit.

The stages before a cut B together cost at least T(B) + send(live(B)), since each live tensor is
sent by the stage that made it. The stages after it cost at least T(all) - T(B) + receive(live(B)),
since each is received by one that reads it. With unequal devices both hold for every convex
combination of the loads, so each op and tensor counts at its cheapest weighted device.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from autosplit.planner.exact.downset_table import (
    Words,
    chunks,
    exceeds_live_limits,
    live_tensors,
    to_bits,
    to_words,
)
from autosplit.planner.problem.problem import Array, Deadline, Index, OutOfTime
from autosplit.planner.problem.scaling import ScaledProblem

_SLACK = 1 + 1e-9  # the weights of unequal devices are no whole numbers


class Windows:
    """A table of downsets ordered by the time of their ops, and the least period of each layer."""

    def __init__(
        self, scaled: ScaledProblem, words: Words, deadline: Deadline | None = None
    ) -> None:
        self.scaled, self.problem, self.deadline = scaled, scaled.problem, deadline
        op_times = scaled.times.mean(axis=0)
        size = scaled.problem.size
        parts = [to_bits(words[c], size).astype(np.float64) @ op_times for c in chunks(words)]
        self.words = words[np.argsort(np.concatenate(parts), kind="stable")]
        self.bounds = [_LayerBound(scaled, k) for k in range(scaled.problem.stages + 1)]
        self.least = self._least_periods()

    def bound(self) -> float:
        """The largest over the layers of the least period that any allowed cut there has."""
        least = [float(layer.min(initial=math.inf)) for layer in self.least]
        return max(least, default=0.0) / _SLACK

    def rows(self, limit: float) -> list[Index]:
        """For each layer the rows that may be the cut there."""
        return [np.flatnonzero(least <= limit * _SLACK) for least in self.least]

    def rest(self, rows: Index, layer: int) -> Array:
        """The least latency of the stages after some cuts at a layer."""
        return self.bounds[layer].rest(self.words[rows])

    def _least_periods(self) -> list[NDArray[np.float32]]:
        """Per layer and row the least period with that cut.

        It is infinite where the cut is not allowed or its period is past the limit.
        """
        least = [np.full(len(self.words), math.inf, dtype=np.float32) for _ in self.bounds]
        no_transfers = np.zeros((1, len(self.problem.producer)))
        for part in chunks(self.words):
            if self.deadline is not None and self.deadline():
                raise OutOfTime
            bits = to_bits(self.words[part], self.problem.size).astype(np.float64)
            # Work alone rules out most rows before the live tensors of the others are looked up.
            work = np.min(self._layer_bounds(bits, no_transfers), axis=0)
            rows = np.flatnonzero(work <= self.scaled.limit * _SLACK)
            if len(rows):
                allowed = self._allowed_bounds(self.words[part][rows], bits[rows])
                for layer, bound in zip(least, allowed, strict=True):
                    # Rounding to single precision may not raise a bound.
                    lower = np.nextafter(bound.astype(np.float32), np.float32(0))
                    layer[part.start + rows] = lower
        return least

    def _layer_bounds(self, bits: Array, live: Array) -> list[Array]:
        """Per layer the least period of rows with these groups and live tensors."""
        if self.problem.uniform:
            sums = self.bounds[0].sums(bits, live)
            return [layer.least(sums) for layer in self.bounds]
        return [layer.least(layer.sums(bits, live)) for layer in self.bounds]

    def _allowed_bounds(self, words: Words, bits: Array) -> list[Array]:
        """``_layer_bounds`` of some rows, infinite at the layers where they are not allowed."""
        live = live_tensors(self.problem, bits.astype(np.uint8)).live
        banned = exceeds_live_limits(self.problem, live)
        count = bits.sum(axis=1).astype(np.int64)
        bounds = self._layer_bounds(bits, live.astype(np.float64))
        for layer, bound in zip(self.bounds, bounds, strict=True):
            bound[banned | layer.banned(words, count, bits)] = math.inf
        return bounds


class _LayerBound:
    """The bounds of one layer k: K - k stages lie after it."""

    def __init__(self, scaled: ScaledProblem, k: int) -> None:
        p = scaled.problem
        self.problem, self.k, self.scaled = p, k, scaled
        self.after = range(k, p.stages)
        self.alike = p.uniform
        self.inside, self.outside = to_words([p.inside[k], p.outside[k]], p.size)
        self.memory_before = float(p.memory[:k].sum())
        self.memory_after = float(p.memory[k:].sum())
        tables = scaled.times, scaled.send, scaled.receive
        self.cheapest_before = [p.least(table, range(k)) for table in tables]
        self.cheapest_after = [p.least(table, self.after) for table in tables]
        self.overhead_before = p.least_overhead(range(k)) / scaled.unit
        self.overhead_after = p.least_overhead(self.after) / scaled.unit

    def sums(self, bits: Array, live: Array) -> tuple[Array, Array, Array, Array]:
        """Per row: ops before, ops after, sends before, receipts after, at this layer's weights."""
        if self.alike:
            ops, send, receive = (self.scaled.times[0], self.scaled.send[0], self.scaled.receive[0])
            time = bits @ ops
            return time, ops.sum() - time, live @ send, live @ receive
        ops_before, send, _ = self.cheapest_before
        ops_after, _, receive = self.cheapest_after
        return bits @ ops_before, ops_after.sum() - bits @ ops_after, live @ send, live @ receive

    def least(self, sums: tuple[Array, Array, Array, Array]) -> Array:
        """The least period of a path with these cuts at this layer."""
        before, after, sent, received = sums
        first = last = np.zeros(len(before))
        # Weights share the work out; equal devices share it evenly.
        if self.k:
            first = (before + sent) / (self.k if self.alike else 1) + self.overhead_before
        if self.after:
            shared = (after + received) / (len(self.after) if self.alike else 1)
            last = shared + self.overhead_after
        return np.maximum(first, last)

    def banned(self, words: Words, count: NDArray[np.int64], bits: Array) -> NDArray[np.bool_]:
        """Rows that break a pin, leave too few groups for a side, or do not fit its memory."""
        p = self.problem
        banned = np.zeros(len(words), dtype=bool)
        if self.inside.any() or self.outside.any():
            missing = (words & self.inside) != self.inside
            banned |= (missing | ((words & self.outside) != 0)).any(axis=1)
        if not p.allow_empty:
            banned |= (count < self.k) | (p.size - count < len(self.after))
        if min(self.memory_before, self.memory_after) < p.sizes.sum():
            sizes = bits @ p.sizes
            banned |= sizes > self.memory_before * _SLACK
            banned |= p.sizes.sum() - sizes > self.memory_after * _SLACK
        return banned

    def rest(self, words: Words) -> Array:
        """The least latency of the stages after each cut: every cost at its cheapest device."""
        rest = np.zeros(len(words))
        if not self.after:
            return rest
        p, s = self.problem, self.scaled
        ops = np.min([p.at(s.times, d) for d in self.after], axis=0)
        receive = np.min([p.at(s.receive, d) for d in self.after], axis=0)
        fixed = 0.0 if p.allow_empty else sum(float(p.at(s.overheads, d)) for d in self.after)
        for part in chunks(words):
            bits = to_bits(words[part], p.size)
            live = live_tensors(p, bits).live
            work = ops.sum() - bits.astype(np.float64) @ ops
            rest[part] = work + live.astype(np.float64) @ receive + fixed
        return rest
