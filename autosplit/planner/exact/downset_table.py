"""Many downsets at once: a matrix of 64-bit words, one row a downset, and what can be weighed over its rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autosplit.cuts import TooManyDownsets, members
from autosplit.planner.problem.problem import Array, Problem

Words = NDArray[np.uint64]
_CHUNK = 256  # rows whose unpacked bits stay in the cache, in products too small for threads


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


def to_bits(words: Words, groups: int) -> NDArray[np.uint8]:
    """One column a group, 0 or 1."""
    raw = np.ascontiguousarray(words, dtype="<u8").view(np.uint8)
    return np.unpackbits(raw, axis=1, count=groups, bitorder="little")


def from_bits(bits: NDArray[np.uint8]) -> Words:
    """Rows for columns of 0 and 1, one a group."""
    packed = np.packbits(bits, axis=1, bitorder="little")
    padded = np.pad(packed, ((0, 0), (0, 8 * width(bits.shape[1]) - packed.shape[1])))
    return np.ascontiguousarray(padded).view("<u8")


def list_rows(predecessors: Sequence[int], limit: int) -> Words:
    """All downsets, each once. Raises TooManyDownsets past ``limit`` rows.

    Each group in turn is added to the rows that hold its producers; a row that holds a group stands no earlier than the
    first that does, so only the rows from there on are looked at.
    """
    rows = np.zeros((1024, width(len(predecessors))), dtype=np.uint64)
    used, first = 1, [0] * len(predecessors)
    for i, producers in enumerate(predecessors):
        start = max((first[p] for p in members(producers)), default=0)
        wanted = to_words([producers], len(predecessors))[0]
        fits = np.ones(used - start, dtype=bool)
        for w in np.flatnonzero(wanted):
            fits &= (rows[start:used, w] & wanted[w]) == wanted[w]
        added = start + np.flatnonzero(fits)
        if used + len(added) > limit:
            raise TooManyDownsets(
                f"the graph has more than {limit} legal cuts; they are too many to list"
            )
        if used + len(added) > len(rows):
            rows = np.concatenate([rows, np.zeros_like(rows)])
        new = rows[added]
        new[:, i // 64] |= np.uint64(1 << (i % 64))
        rows[used : used + len(added)] = new
        first[i], used = used, used + len(added)
    return rows[:used].copy()


def merge(*parts: Words) -> Words:
    """The distinct rows of several matrices."""
    return np.unique(np.concatenate(parts), axis=0)


def chunks(words: Words, size: int = _CHUNK) -> Iterator[slice]:
    """Slices of a size that stays in the cache."""
    return (slice(i, min(i + size, len(words))) for i in range(0, len(words), size))


@dataclass(frozen=True)
class Live:
    """For some downsets: which tensors are live (rows x t), and how many readers of each lie inside."""

    live: NDArray[np.bool_]
    inside: NDArray[np.int64]


def live_tensors(problem: Problem, bits: NDArray[np.uint8]) -> Live:
    """The tensors made before and read after each downset; model inputs count as made before all."""
    t = len(problem.producer)
    if not t:
        nothing = np.zeros((len(bits), 0), dtype=bool)
        return Live(nothing, nothing.astype(np.int64))
    flat, starts = problem.reader_index
    inside = np.add.reduceat(bits[:, flat], starts, axis=1, dtype=np.int64)
    producer = np.array(problem.producer)
    made = bits[:, np.maximum(producer, 0)].astype(bool) | (producer < 0)
    return Live(made & (inside < problem.readers), inside)


def weigh(
    problem: Problem, words: Words, over_groups: Array, over_live: Array
) -> tuple[Array, Array]:
    """Sums per row: ``over_groups`` (n x a) over the groups inside, ``over_live`` (t x b) over the live tensors."""
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
    found = [0]
    for i in order:
        found.append(found[-1] | 1 << i)
    return to_words(found, groups)
