"""Loads of all stages between two lists of cuts, as matrices.

For downsets A and B with A inside B, and live(X) the tensors made in X and read outside, the stage
B - A costs in each row of the table
    T(B) - T(A) + overhead + send(live(B)) + receive(live(A))
      - sum over t in live(A) and live(B) of send(t), and of receive(t) where A and B hold equally
        many readers of t,
because a tensor live at both is made before the stage and, if no reader was added, not read in it.
The last sum is a matrix product over 0/1 columns: one column for each tensor with one reader; for
any other tensor one column that marks it as live and one for each number of readers inside the cut.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from autosplit.cuts import members
from autosplit.planner.bound import Weights
from autosplit.planner.cut_set import Words, chunks, to_bits, to_words
from autosplit.planner.problem import SAME, Array, Deadline, Index, OutOfTime, Problem

_TABLE_BYTES = 400_000_000  # for the loads of all pairs of cuts
_SLOW = 1e7  # how many times the load of the others a replica beside them may have to be of use
Mask = NDArray[np.bool_]


class StageLoads:
    """A set of cuts in order of the work before them, and the stages between them.

    Cuts that no path of period at most ``limit`` can pass are left out. Costs larger than all
    devices can spend within the limit are capped, so that sums stay precise. Raises OutOfTime.
    """

    def __init__(
        self,
        problem: Problem,
        words: Words,
        weights: Weights,
        limit: float = math.inf,
        deadline: Deadline | None = None,
    ) -> None:
        self.problem, self.weights, self._deadline = problem, weights, deadline
        finite = problem.times[np.isfinite(problem.times)].sum() + problem.overheads.sum()
        transfers = problem.send.sum() + (problem.receive * problem.readers).sum()
        self.top = max(min(limit * problem.question.count, float(finite + transfers)), 1e-300)
        # A larger load is not possible, above the limit, or that of a replica that hardly helps.
        self._most = 2 * self.top * (_SLOW if problem.mixes else 1.0)
        costs = problem.times, problem.send, problem.receive
        self.times, self.send, self.receive = (np.minimum(c, 2 * self._most) for c in costs)
        least = self._least(self.times)
        if 0 < limit < math.inf:
            words = words[self._may_be_within(self._sums(words, least[:, None])[:, 0], limit)]
        self._measure(words, least)

    def _least(self, costs: Array) -> Array:
        """The least weighted device time of each column, over the rows of the table."""
        least: Array = (costs * self.weights.of_row[:, None]).min(axis=0)
        return least

    def _sums(self, words: Words, over_groups: Array) -> Array:
        """Sums over the groups of each cut."""
        sums = np.empty((len(words), over_groups.shape[1]))
        for part in self._chunks(words):
            sums[part] = to_bits(words[part], self.problem.size).astype(np.float64) @ over_groups
        return sums

    def _chunks(self, words: Words) -> Iterator[slice]:
        for part in chunks(words):
            if self._deadline is not None and self._deadline():
                raise OutOfTime
            yield part

    def _may_be_within(self, work: Array, limit: float) -> Mask:
        """Which cuts may lie on a path within a period, by the work before and after them alone."""
        taken = np.unique(self.weights.of_state)
        slack = limit * SAME
        state = np.searchsorted(taken, (work - slack) / limit)
        enough = taken[np.minimum(state, len(taken) - 1)]
        total = float(work.max())
        within: Mask = (state < len(taken)) & (total - work <= limit * (taken[-1] - enough) + slack)
        within |= (work == 0) | (work == total)
        return within

    def _measure(self, words: Words, least_time: Array) -> None:
        """Compute the sums over each cut, and sort the cuts by the work before them."""
        p = self.problem
        ends = np.stack([self._least(self.send[p.kind]), self._least(self.receive[p.kind])], axis=1)
        ones, stateful = np.ones(p.size), p.stateful.astype(np.float64)
        over_groups = np.vstack([least_time, ones, stateful, p.sizes, self.times]).T
        sums = self._sums(words, over_groups)
        # The empty cut is the first and the full one the last; of nested cuts the larger is later.
        order = np.lexsort((sums[:, 1], sums[:, 0], sums[:, 1] == p.size, sums[:, 1] > 0))
        self.words, sums = words[order], sums[order]
        self.count, self.states, self.sizes = sums[:, 1], sums[:, 2], sums[:, 3]
        self.work = sums[:, 4:].T.copy()
        self.columns = np.zeros((len(words), len(self._columns[0])), dtype=np.uint8)
        border = np.zeros((len(words), 2))
        for part in self._chunks(self.words) if len(p.producer) else ():
            live, self.columns[part] = self._live(to_bits(self.words[part], p.size))
            border[part] = live @ ends
        # The least weighted device time of the stages before and after each cut.
        self.before = sums[:, 0] + border[:, 0]
        self.after = sums[-1, 0] - sums[:, 0] + border[:, 1]

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def _columns(self) -> tuple[Index, Index, Mask]:
        """For each column its tensor, number of readers (-1: any), and whether it marks live."""
        tensor, number, is_live = [], [], []
        for t, readers in enumerate(self.problem.readers.tolist()):
            if readers > 1:
                tensor.append(t)
                number.append(-1)
                is_live.append(True)
            for inside in range(readers):
                tensor.append(t)
                number.append(inside)
                is_live.append(readers == 1)
        index = np.array(tensor, dtype=np.intp), np.array(number, dtype=np.intp)
        return *index, np.array(is_live, dtype=bool)

    @cached_property
    def _readers(self) -> tuple[Index, Index]:
        """The concatenated consumers of all tensors, and where those of each tensor begin."""
        flat = [list(members(consumers)) for consumers in self.problem.consumers]
        starts = np.cumsum([0, *map(len, flat)])[:-1]
        return np.concatenate([np.array(c, dtype=np.intp) for c in flat]), starts.astype(np.intp)

    def _live(self, bits: NDArray[np.uint8]) -> tuple[Array, NDArray[np.uint8]]:
        """Which tensors are live at some cuts, and the 0/1 columns of these cuts."""
        p, (flat, starts) = self.problem, self._readers
        inside = np.add.reduceat(bits[:, flat], starts, axis=1, dtype=np.int64)
        available = bits[:, np.maximum(p.producer, 0)].astype(bool) | (p.producer < 0)
        live = available & (inside < p.readers)
        tensor, number, _ = self._columns
        equal = (inside[:, tensor] == number) | (number < 0)
        return live.astype(np.float64), (live[:, tensor] & equal).astype(np.uint8)

    def _product(self, a: Index, b: Index, live: Array, unread: Array) -> Array | float:
        """Per pair the sum over tensors live at both cuts of ``live``, and ``unread`` if unread."""
        tensor, number, is_live = self._columns
        weight = np.where(is_live, live[tensor], 0.0) + np.where(number >= 0, unread[tensor], 0.0)
        used = np.flatnonzero(weight)
        if not len(used):
            return 0.0
        left, right = self.columns[np.ix_(a, used)], self.columns[np.ix_(b, used)]
        both = left.any(axis=0) & right.any(axis=0)
        weighted = left[:, both] * weight[used[both]]
        product: Array = weighted @ right[:, both].T.astype(np.float64)
        return product

    def loads(self, row: int, a: Index, b: Index) -> Array:
        """The load of the stage from each cut of ``a`` to each of ``b``, infinite if impossible."""
        if self._is_small:
            # Indexing one axis at a time is twice as fast as both at once.
            return self._table[row][a][:, b]
        return self._loads(row, a, b)

    @cached_property
    def _is_small(self) -> bool:
        """Whether the loads of all pairs of cuts can be stored."""
        return 8 * len(self) ** 2 * len(self.problem.rows) <= _TABLE_BYTES and len(self) <= 4000

    @cached_property
    def _table(self) -> list[Array]:
        every = np.arange(len(self))
        return [self._loads(row, every, every) for row in range(len(self.problem.rows))]

    def _loads(self, row: int, a: Index, b: Index) -> Array:
        p, kind = self.problem, self.problem.kind[row]
        send, receive = self.send[kind], self.receive[kind]
        start = self.work[row][a] - self._border(a, receive)
        end = self.work[row][b] + self._border(b, send) + p.overheads[row]
        loads: Array = end[None, :] - start[:, None]
        if send.any() or receive.any():
            loads -= self._product(a, b, send, receive)
            np.maximum(loads, 0.0, out=loads)
        loads[~self._nested(a, b)] = math.inf
        loads[loads > self._most] = math.inf
        if p.together[row]:
            parts = self._parts(row)
            loads[parts[a][:, None] != parts[b]] = math.inf
        limit = float(p.memory[kind])
        if limit < p.largest_memory:
            loads[self.memory(a, b) > limit * (1 + 1e-12)] = math.inf
        return loads

    def _border(self, cuts: Index, cost: Array) -> Array | float:
        """The summed cost of the tensors that are live at each of some cuts."""
        if not cost.any():
            return 0.0
        tensor, _, is_live = self._columns
        weight = np.where(is_live, cost[tensor], 0.0)
        return np.asarray(self.columns[cuts] @ weight, dtype=np.float64)

    def _nested(self, a: Index, b: Index) -> Mask:
        """The pairs in which the first cut is a proper subset of the second."""
        nested: Mask = self.count[a][:, None] < self.count[b]
        for word in range(self.words.shape[1]):
            left, right = self.words[a, word], ~self.words[b, word]
            # Most words are equal in all cuts of a block.
            if np.bitwise_or.reduce(left) & np.bitwise_or.reduce(right):
                nested &= (left[:, None] & right) == 0
        return nested

    def memory(self, a: Index, b: Index) -> Array:
        """Bytes of a replica of each stage."""
        p = self.problem
        memory: Array = self.sizes[b] - self.sizes[a][:, None]
        if p.costs.activations:
            size = p.bytes * p.batch
            memory = memory + self._border(b, size)
            memory += np.reshape(self._border(a, size), (-1, 1))
            memory -= self._product(a, b, size, size)
        return memory

    def bytes_moved(self, a: Index, b: Index) -> Array:
        """Bytes that each stage receives from other stages for an item."""
        produced = np.where(self.problem.producer >= 0, self.problem.bytes, 0.0)
        received = np.reshape(self._border(a, produced), (-1, 1))
        staying = self._product(a, b, np.zeros_like(produced), produced)
        return np.broadcast_to(received - staying, (len(a), len(b)))

    def has_state(self, a: Index, b: Index) -> Mask:
        """Which stages have a state."""
        return np.asarray(self.states[b] > self.states[a][:, None])

    def _parts(self, row: int) -> Index:
        """For each cut a number that identifies the parts of a row's groups that it tears off.

        A stage separates no group of the row if both of its cuts have the same number.
        """
        groups = self.problem.together[row]
        if groups not in self._part_numbers:
            torn = np.zeros_like(self.words)
            for mask in to_words(groups, self.problem.size):
                inside = self.words & mask
                is_torn = (inside != 0).any(axis=1) & (inside != mask).any(axis=1)
                torn[is_torn] |= inside[is_torn]
            numbers = np.unique(torn, axis=0, return_inverse=True)[1]
            self._part_numbers[groups] = numbers.reshape(-1)
        return self._part_numbers[groups]

    @cached_property
    def _part_numbers(self) -> dict[tuple[int, ...], Index]:
        return {}
