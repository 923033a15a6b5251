"""Outputs of a stage for other actors, which keep the memory of those on their machine mapped."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from autosplit.hardware.execution.shared_memory import SharedArrays
from autosplit.hardware.execution.tensor_channel import Array

# Items that are added at once, at most. More of them need fewer open files, of which a process
# often may have 1,024 only, but leave more memory unused.
MOST_ADDED = 8


class SharedOutputs:
    """Copies of outputs, ``width`` for each item, each with a key.

    The memory of an item is used again once all its outputs are freed. One thread puts items, and
    any thread may call the other methods.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self._arrays: list[Array] = []  # by key
        self._memories: list[tuple[range, SharedArrays]] = []  # by item: with the keys inside
        self._needed: list[int] = []  # by item: how many outputs are not freed
        self._unused: list[int] = []  # items
        self._freeing = threading.Lock()

    def put(self, arrays: Sequence[Array]) -> range:
        """Copy the outputs of an item, which have the same shapes for every item; their keys."""
        if not arrays:
            return range(0)
        if not self._unused:
            self._grow(arrays)
        item = self._unused.pop()
        self._needed[item] = self._width
        keys = range(item * self._width, (item + 1) * self._width)
        for key, array in zip(keys, arrays, strict=True):
            self._arrays[key][...] = array
        return keys

    def get(self, key: int) -> Array:
        """The output with a key."""
        return self._arrays[key]

    def memory(self, key: int) -> tuple[range, SharedArrays]:
        """The memory where an output lies, and the keys of all outputs there."""
        return self._memories[key // self._width]

    def free(self, key: int) -> None:
        """Give up an output; once for each key that was put."""
        item = key // self._width
        with self._freeing:
            self._needed[item] -= 1
            if not self._needed[item]:
                self._unused.append(item)

    def _grow(self, arrays: Sequence[Array]) -> None:
        first = len(self._needed)
        added = min(max(1, first), MOST_ADDED)
        shared = SharedArrays([(array.shape, array.dtype) for array in arrays] * added)
        self._arrays += shared.arrays
        keys = range(first * self._width, len(self._arrays))
        self._memories += [(keys, shared)] * added
        self._needed += [0] * added
        self._unused += range(first, first + added)
