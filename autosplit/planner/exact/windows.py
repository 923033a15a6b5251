"""Which downsets can be the cut at level k of a chain whose loads stay within a limit.

The stages before a cut B together cost at least T(B) + send(live(B)), since each live tensor is sent by the stage that
made it; the stages after it at least T(all) - T(B) + receive(live(B)), since each is received by one that reads it.
With unequal devices both hold for every convex combination of the loads, so with the devices' weights each op and
tensor counts at its cheapest.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from autosplit.planner.exact.downset_table import Words, chunks, live_tensors, to_bits, to_words
from autosplit.planner.problem.problem import Array, Deadline, OutOfTime, Scaled

_SLACK = 1 + 1e-9  # the weights of unequal devices are no whole numbers


class Windows:
    """The table of downsets, ordered by the time of their ops, and what each costs at least as a cut at each level."""

    def __init__(self, scaled: Scaled, words: Words, deadline: Deadline | None = None) -> None:
        self.scaled, self.problem, self.deadline = scaled, scaled.problem, deadline
        time = np.concatenate([_weigh(scaled, words[c]) for c in chunks(words)])
        self.words = words[np.argsort(time, kind="stable")]
        self.costs = [_Level(scaled, k) for k in range(scaled.problem.stages + 1)]
        self.least = self._measure()

    def bound(self) -> float:
        """The largest over the levels of the least that any allowed cut there costs."""
        return (
            max((float(level.min(initial=math.inf)) for level in self.least), default=0.0) / _SLACK
        )

    def levels(self, limit: float) -> list[NDArray[np.intp]]:
        """For each level the rows that may be the cut there."""
        return [np.flatnonzero(level <= limit * _SLACK) for level in self.least]

    def rest(self, rows: NDArray[np.intp], level: int) -> Array:
        """The least latency of the stages after some cuts at a level."""
        return self.costs[level].rest(self.words[rows])

    def _measure(self) -> list[NDArray[np.float32]]:
        """Per level and row the least period with that cut, infinite where the cut is not allowed or past the limit."""
        least = [np.full(len(self.words), math.inf, dtype=np.float32) for _ in self.costs]
        for part in chunks(self.words):
            if self.deadline is not None and self.deadline():
                raise OutOfTime
            cells = to_bits(self.words[part], self.problem.size).astype(np.float64)
            quiet = self._least(cells, np.zeros((1, len(self.problem.producer))))
            rows = np.flatnonzero(np.min(quiet, axis=0) <= self.scaled.limit * _SLACK)
            if len(rows):
                for out, cost in zip(
                    least, self._kept(self.words[part][rows], cells[rows]), strict=True
                ):
                    # rounding to single precision may not raise a bound
                    out[part.start + rows] = np.nextafter(cost.astype(np.float32), np.float32(0))
        return least

    def _least(self, cells: Array, wires: Array) -> list[Array]:
        """Per level the least period of rows whose groups and live tensors are given."""
        if self.problem.uniform and not self.problem.allow_empty:
            sums = self.costs[0].sums(cells, wires)
            return [level.least(sums) for level in self.costs]
        return [level.least(level.sums(cells, wires)) for level in self.costs]

    def _kept(self, words: Words, cells: Array) -> list[Array]:
        """``_least`` of some rows, infinite at the levels where they are not allowed."""
        p = self.problem
        live = live_tensors(p, cells.astype(np.uint8)).live
        real = live & (np.array(p.producer, dtype=int) >= 0)
        banned = (real @ p.number > p.live_tensors) | (real @ p.bytes > p.live_bytes)
        count = cells.sum(axis=1).astype(np.int64)
        costs = self._least(cells, live.astype(np.float64))
        for level, cost in zip(self.costs, costs, strict=True):
            cost[banned | level.banned(words, count, cells)] = math.inf
        return costs


class _Level:
    """The bounds of one level k: K - k stages lie after it."""

    def __init__(self, scaled: Scaled, k: int) -> None:
        p = scaled.problem
        self.problem, self.k, self.scaled = p, k, scaled
        before, after = list(range(k)), list(range(k, p.stages))
        if p.uniform and not p.allow_empty:
            self.share = (k, len(after))
            self.tables = scaled.times[0], scaled.send[0], scaled.receive[0]
            self.fixed = (float(scaled.overheads[0]), float(scaled.overheads[0]))
        inside, outside = to_words([p.inside[k], p.outside[k]], p.size)
        self.inside, self.outside = inside, outside
        self.memory = (float(p.memory[before].sum()), float(p.memory[after].sum()))
        self.ends = _ends(scaled, before), _ends(scaled, after)

    def sums(self, cells: Array, wires: Array) -> tuple[Array, Array, Array, Array]:
        """Per row: ops before, ops after, sends before, receipts after, at the weights of this level."""
        (ops_a, send, _), (ops_b, _, receive) = self.ends
        if self.problem.uniform and not self.problem.allow_empty:
            ops, send, receive = self.tables
            time = cells @ ops
            return time, ops.sum() - time, wires @ send, wires @ receive
        return cells @ ops_a, ops_b.sum() - cells @ ops_b, wires @ send, wires @ receive

    def least(self, sums: tuple[Array, Array, Array, Array]) -> Array:
        """The least period of a chain with these cuts at this level."""
        before, after, sent, received = sums
        if self.problem.uniform and not self.problem.allow_empty:
            k, rest = self.share
            first = (before + sent) / k + self.fixed[0] if k else np.zeros(len(before))
            last = (after + received) / rest + self.fixed[1] if rest else np.zeros(len(before))
            return np.maximum(first, last)
        zero = np.zeros(len(before))
        return np.maximum(
            before + sent if self.k else zero,
            after + received if self.k < self.problem.stages else zero,
        )

    def banned(self, words: Words, count: NDArray[np.int64], cells: Array) -> NDArray[np.bool_]:
        """Rows that break a pin, leave too few groups on one side, or cannot fit the memory of the devices there."""
        p = self.problem
        bad = np.zeros(len(words), dtype=bool)
        if self.inside.any() or self.outside.any():
            bad |= (((words & self.inside) != self.inside) | ((words & self.outside) != 0)).any(
                axis=1
            )
        if not p.allow_empty:
            bad |= (count < self.k) | (p.size - count < p.stages - self.k)
        if min(self.memory) < p.sizes.sum():
            held = cells @ p.sizes
            bad |= (held > self.memory[0] * _SLACK) | (
                p.sizes.sum() - held > self.memory[1] * _SLACK
            )
        return bad

    def rest(self, words: Words) -> Array:
        """The least latency of the stages after each cut: every op and live tensor at its cheapest device."""
        found = np.zeros(len(words))
        after = range(self.k, self.problem.stages)
        if not after:
            return found
        p, s = self.problem, self.scaled
        ops, receive = (np.min([p.at(t, d) for d in after], axis=0) for t in (s.times, s.receive))
        fixed = (
            0.0
            if p.allow_empty
            else sum(float(s.overheads[d if len(s.overheads) > 1 else 0]) for d in after)
        )
        for part in chunks(words):
            bits = to_bits(words[part], p.size)
            live = live_tensors(p, bits).live
            found[part] = (
                ops.sum()
                - bits.astype(np.float64) @ ops
                + live.astype(np.float64) @ receive
                + fixed
            )
        return found


def _ends(scaled: Scaled, devices: list[int]) -> tuple[Array, Array, Array]:
    """Ops, sends and receipts at the cheapest weighted device; weights sum to 1 and favour fast devices."""
    p = scaled.problem
    if not devices:
        return np.zeros(p.size), np.zeros(len(p.producer)), np.zeros(len(p.producer))
    speed = np.array([1 / max(1.0, p.at(scaled.times, d).sum()) for d in devices])
    weights = speed / speed.sum()
    ops, send, receive = (
        np.min([w * p.at(table, d) for w, d in zip(weights, devices, strict=True)], axis=0)
        for table in (scaled.times, scaled.send, scaled.receive)
    )
    return ops, send, receive


def _weigh(scaled: Scaled, words: Words) -> Array:
    found: Array = to_bits(words, scaled.problem.size).astype(np.float64) @ scaled.times.mean(
        axis=0
    )
    return found
