"""Sets of cuts: all downsets of a graph or, if there are too many, those near good op orders.

A set is a matrix of 64-bit words; each row is a downset of groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autosplit.cuts import TooManyDownsets, bitset, members, successors
from autosplit.cuts.orders import PLAIN_ORDERS, random_order
from autosplit.cuts.stages import cuts_between
from autosplit.planner.problem import Deadline, OutOfTime, Problem

Words = NDArray[np.uint64]

TABLE_BYTES = 200_000_000  # for a set of cuts and what is stored beside it
_CHUNK = 256  # rows whose unpacked bits fit the cache; products with them start no threads
_ROWS = 6000  # rows of a set of cuts near a split
_CENTRES = 32  # cuts near those of the best split whose neighbours are searched too
_MOST_GROUPS = 64  # that are added to a cut, and that are removed


def width(groups: int) -> int:
    """The number of words in a row."""
    return max(1, -(-groups // 64))


def to_words(downsets: Sequence[int], groups: int) -> Words:
    """A matrix with a row for each bitset."""
    size = width(groups) * 8
    data = b"".join(d.to_bytes(size, "little") for d in downsets)
    return np.frombuffer(data, dtype="<u8").reshape(len(downsets), size // 8)


def to_int(words: Words) -> int:
    """The bitset of one row."""
    return int.from_bytes(words.astype("<u8").tobytes(), "little")


def to_bits(words: Words, groups: int) -> NDArray[np.uint8]:
    """The bits of the rows as numbers 0 or 1, in one column per group."""
    raw = np.ascontiguousarray(words, dtype="<u8").view(np.uint8)
    return np.unpackbits(raw, axis=1, count=groups, bitorder="little")


def chunks(words: NDArray[Any], size: int = _CHUNK) -> Iterator[slice]:
    """Slices of a size that stays in the cache."""
    return (slice(i, min(i + size, len(words))) for i in range(0, len(words), size))


def merge(*parts: Words) -> Words:
    """The distinct rows of several matrices."""
    return np.unique(np.concatenate(parts), axis=0)


def row_limit(problem: Problem) -> int:
    """The largest number of cuts that are listed."""
    return TABLE_BYTES // (8 * width(problem.size) + 64)


def all_cuts(predecessors: Sequence[int], limit: int, deadline: Deadline | None = None) -> Words:
    """All downsets, each once.

    Each group in turn is added to the rows that hold its producers.

    Raises:
        TooManyDownsets: There are more than ``limit``.
        OutOfTime: The deadline passed.
    """
    size = len(predecessors)
    rows = np.zeros((1024, width(size)), dtype=np.uint64)
    # No row before ``first[g]`` holds group g, so only the rows from there on are looked at.
    count, first = 1, [0] * size
    for g, producers in enumerate(predecessors):
        if deadline is not None and deadline():
            raise OutOfTime
        start = max((first[p] for p in members(producers)), default=0)
        required = to_words([producers], size)[0]
        fits = np.ones(count - start, dtype=bool)
        for w in np.flatnonzero(required):
            fits &= (rows[start:count, w] & required[w]) == required[w]
        bases = start + np.flatnonzero(fits)
        if count + len(bases) > limit:
            raise TooManyDownsets(
                f"the graph has more than {limit} legal cuts; they are too many to list"
            )
        # At most as many rows are added as there are, so doubling the array is enough.
        if count + len(bases) > len(rows):
            rows = np.concatenate([rows, np.zeros_like(rows)])
        new = rows[bases]
        new[:, g // 64] |= np.uint64(1 << (g % 64))
        rows[count : count + len(bases)] = new
        first[g], count = count, count + len(bases)
    return rows[:count].copy()


def along_orders(problem: Problem) -> Words:
    """The cuts along a few topological orders."""
    before = problem.contraction.predecessors
    return merge(
        *(to_words(_prefixes(order_of(before)), problem.size) for order_of in PLAIN_ORDERS)
    )


def near(
    problem: Problem, split: Sequence[Sequence[int]], random: Random, size: int = _ROWS
) -> Words:
    """About ``size`` cuts: those of a good split, some near them, some along random orders."""
    before, group_of = problem.contraction.predecessors, problem.contraction.group_of
    cuts = cuts_between([[group_of[op] for op in ops] for ops in split])
    downsets = {0, (1 << problem.size) - 1, *cuts}
    for n in range(max(4, size // (2 * problem.size))):
        # Every other order passes through the cuts of the split, the others are free.
        order = _order_through(before, cuts if n % 2 else [], random)
        downsets.update(_prefixes(order))
    once = _sample(_exchanged(before, cuts, random), size // 3, random)
    twice = _exchanged(before, _sample(once, _CENTRES, random), random)
    downsets.update(once, _sample(twice, size // 3, random))
    return merge(to_words(sorted(downsets), problem.size))


def _prefixes(order: Sequence[int]) -> list[int]:
    """The downsets along one topological order, the empty one first."""
    return list(accumulate((1 << g for g in order), int.__or__, initial=0))


def _exchanged(before: Sequence[int], cuts: Sequence[int], random: Random) -> list[int]:
    """Cuts that differ from given ones by one group added, removed or exchanged."""
    after = [bitset(groups) for groups in successors(before)]
    neighbours: set[int] = set()
    for cut in cuts:
        last = [g for g in members(cut) if not after[g] & cut]
        ready = [g for g in members(cut ^ (1 << len(before)) - 1) if not before[g] & ~cut]
        last, ready = _sample(last, _MOST_GROUPS, random), _sample(ready, _MOST_GROUPS, random)
        for fewer in (cut, *(cut ^ 1 << g for g in last)):
            neighbours.update(fewer | 1 << g for g in ready if not before[g] & ~fewer)
            neighbours.add(fewer)
    return sorted(neighbours)


def _sample(cuts: list[int], count: int, random: Random) -> list[int]:
    return random.sample(cuts, min(count, len(cuts)))


def _order_through(before: Sequence[int], cuts: Sequence[int], random: Random) -> list[int]:
    """A random order through nested cuts; half of the time one of the cuts is left out."""
    if not cuts:
        return random_order(before, random)
    skipped = random.randrange(len(cuts)) if random.random() < 0.5 else -1
    ends = [0, *(c for n, c in enumerate(cuts) if n != skipped), (1 << len(before)) - 1]
    order: list[int] = []
    for lower, upper in pairwise(ends):
        between = list(members(upper & ~lower))
        place = {g: n for n, g in enumerate(between)}
        inner = [bitset(place[p] for p in members(before[g] & ~lower)) for g in between]
        order += [between[n] for n in random_order(inner, random)]
    return order
