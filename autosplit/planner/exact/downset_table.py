"""Many downsets at once: a matrix of 64-bit words, one row a downset, and sums over its rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autosplit.cuts import TooManyDownsets, members
from autosplit.planner.problem.problem import Array, Deadline, OutOfTime, Problem

Words = NDArray[np.uint64]
_CHUNK = 256  # rows whose unpacked bits stay in the cache; products stay too small for threads


def width(groups: int) -> int:
    """Words in a row."""
    return max(1, -(-groups // 64))


def to_words(downsets: Sequence[int], groups: int) -> Words:
    """Rows for bitsets."""
    size = width(groups) * 8
    data = b"".join(d.to_bytes(size, "little") for d in downsets)
    return np.frombuffer(data, dtype="<u8").reshape(len(downsets), size // 8)


def to_int(words: Words) -> int:
    """The bitset of one row."""
    return int.from_bytes(words.astype("<u8").tobytes(), "little")


def ops_between(problem: Problem, before: Words, after: Words) -> tuple[int, ...]:
    """The ops of the stage between two rows, ascending."""
    return tuple(members(problem.contraction.expand(to_int(after & ~before))))


def to_bits(words: Words, groups: int) -> NDArray[np.uint8]:
    """One column a group, 0 or 1."""
    raw = np.ascontiguousarray(words, dtype="<u8").view(np.uint8)
    return np.unpackbits(raw, axis=1, count=groups, bitorder="little")


def from_bits(bits: NDArray[np.uint8]) -> Words:
    """Rows for columns of 0 and 1, one a group."""
    packed = np.packbits(bits, axis=1, bitorder="little")
    padded = np.pad(packed, ((0, 0), (0, 8 * width(bits.shape[1]) - packed.shape[1])))
    return np.ascontiguousarray(padded).view("<u8")


def list_rows(predecessors: Sequence[int], limit: int, deadline: Deadline | None = None) -> Words:
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
        # No more rows are added than there are, so doubling is enough.
        if count + len(bases) > len(rows):
            rows = np.concatenate([rows, np.zeros_like(rows)])
        new = rows[bases]
        new[:, g // 64] |= np.uint64(1 << (g % 64))
        rows[count : count + len(bases)] = new
        first[g], count = count, count + len(bases)
    return rows[:count].copy()


def merge(*parts: Words) -> Words:
    """The distinct rows of several matrices."""
    return np.unique(np.concatenate(parts), axis=0)


def chunks(words: NDArray[Any], size: int = _CHUNK) -> Iterator[slice]:
    """Slices of a size that stays in the cache."""
    return (slice(i, min(i + size, len(words))) for i in range(0, len(words), size))


@dataclass(frozen=True)
class Live:
    """For some downsets: which tensors are live, and how many readers of each lie inside.

    Both have a row a downset and a column a tensor.
    """

    live: NDArray[np.bool_]
    readers_inside: NDArray[np.int64]


def live_tensors(problem: Problem, bits: NDArray[np.uint8]) -> Live:
    """The tensors made before and read after each downset; model inputs are made before all."""
    if not problem.producer:
        nothing = np.zeros((len(bits), 0), dtype=bool)
        return Live(nothing, nothing.astype(np.int64))
    flat, starts = problem.reader_index
    readers_inside = np.add.reduceat(bits[:, flat], starts, axis=1, dtype=np.int64)
    producer = np.maximum(np.array(problem.producer), 0)
    available = bits[:, producer].astype(bool) | ~problem.produced
    return Live(available & (readers_inside < problem.readers), readers_inside)


def exceeds_live_limits(problem: Problem, live: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which cuts have more tensors or bytes live than the constraints allow."""
    crossing = live & problem.produced
    too_many: NDArray[np.bool_] = crossing @ problem.tensor_counts > problem.live_tensors
    return too_many | (crossing @ problem.bytes > problem.live_bytes)


def weigh(
    problem: Problem, words: Words, over_groups: Array, over_live: Array
) -> tuple[Array, Array]:
    """Sums per row, of ``over_groups`` (n x a) over its groups and ``over_live`` (t x b).

    The latter is summed over the tensors live there.
    """
    # In chunks, so that the unpacked bits of all rows are never there at once.
    inner = np.empty((len(words), over_groups.shape[1]))
    border = np.zeros((len(words), over_live.shape[1]))
    for part in chunks(words):
        bits = to_bits(words[part], problem.size)
        inner[part] = bits.astype(np.float64) @ over_groups
        if over_live.size:
            border[part] = live_tensors(problem, bits).live.astype(np.float64) @ over_live
    return inner, border


def prefixes(order: Iterable[int], groups: int) -> Words:
    """The downsets along one topological order, the empty one first."""
    downsets = accumulate((1 << g for g in order), int.__or__, initial=0)
    return to_words(list(downsets), groups)
