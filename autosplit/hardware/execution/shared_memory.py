"""Arrays for another process of this machine, in memory that both map.

The memory has no name: a process that is started gets its descriptor, and the kernel frees it with
the last process that maps it, also where that one is killed.
"""

from __future__ import annotations

import math
import mmap
import os
import weakref
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from autosplit.hardware.runtimes.arrays import ALIGNMENT

Array = np.ndarray[Any, Any]
Shape = tuple[Sequence[int], np.dtype[Any]]


class SharedArrays:
    """Arrays in one memory, which other processes may map by its ``descriptor``."""

    def __init__(self, shapes: Sequence[Shape]) -> None:
        self.descriptor = os.memfd_create("autosplit")
        weakref.finalize(self, os.close, self.descriptor)
        # Reserved now: an access to a page that cannot be had later would kill the process.
        os.posix_fallocate(self.descriptor, 0, _starts(shapes)[-1] or 1)
        self.arrays = mapped(self.descriptor, shapes)


def mapped(descriptor: int, shapes: Sequence[Shape]) -> list[Array]:
    """Arrays that lie in the memory of a descriptor one after the other, and keep it mapped."""
    memory = np.frombuffer(mmap.mmap(descriptor, 0), np.uint8)
    arrays = []
    for (shape, dtype), start in zip(shapes, _starts(shapes), strict=False):
        end = start + math.prod(shape) * dtype.itemsize
        arrays.append(memory[start:end].view(dtype).reshape(shape))
    return arrays


def _starts(shapes: Sequence[Shape]) -> list[int]:
    """Where arrays begin, and where the last of them ends."""
    sizes = [math.prod(shape) * dtype.itemsize for shape, dtype in shapes]
    # TVM's kernels load whole vectors.
    return list(accumulate((size + -size % ALIGNMENT for size in sizes), initial=0))
