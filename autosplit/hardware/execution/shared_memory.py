"""Arrays for another process of this machine, in memory that both map.

The memory has no name: its descriptor goes through a Unix socket, and the kernel frees it with the
last process that maps it, also where that one is killed.
"""

from __future__ import annotations

import fcntl
import math
import mmap
import os
import socket
import weakref
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from autosplit.hardware.runtimes.arrays import ALIGNMENT

IS_AVAILABLE = hasattr(os, "memfd_create")

Array = np.ndarray[Any, Any]
Shape = tuple[Sequence[int], np.dtype[Any]]
_MARK = b"\0"  # goes with a descriptor, which cannot travel alone


class SharedArrays:
    """Arrays in one memory, which other processes may map for as long as they like.

    It takes two of the files that a process may have open, however many arrays there are.
    """

    def __init__(self, shapes: Sequence[Shape]) -> None:
        self.descriptor = _allocate(room(shapes) or 1)
        weakref.finalize(self, os.close, self.descriptor)
        self.arrays = views(mapped(self.descriptor), shapes)


class SharedMemory:
    """The memory that this end of a Unix socket writes, and the one that it reads.

    Each is replaced by a larger one before a message that needs more, which both ends see.
    """

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._written = self._read = np.empty(0, np.uint8)

    def send(self, frame: bytes, arrays: Sequence[Array]) -> None:
        """Send a message whose arrays the other end finds in its memory. Raises OSError."""
        shapes = [(array.shape, array.dtype) for array in arrays]
        size, larger = room(shapes), None
        if size > len(self._written):
            larger = SharedArrays([((size,), np.dtype(np.uint8))])
            (self._written,) = larger.arrays
        for array, written in zip(arrays, views(self._written, shapes), strict=True):
            written[...] = array
        self._socket.sendall(frame)
        if larger:
            self.lend(larger)

    def receive(self, shapes: Sequence[Shape]) -> list[Array]:
        """The arrays of a message, in the memory that the other end writes.

        Raises OSError where it has too little.
        """
        size = room(shapes)
        if size > len(self._read):
            self._read = self.borrow(size)
        return views(self._read, shapes)

    def lend(self, shared: SharedArrays) -> None:
        """Let the other end map the arrays' memory. Raises OSError where it is gone."""
        socket.send_fds(self._socket, [_MARK], [shared.descriptor])

    def borrow(self, size: int) -> Array:
        """The bytes of the memory that the other end lends. Raises OSError for less than ``size``.

        An access behind the end of it would kill this process, so it must not be able to shrink.
        """
        _, descriptors, _, _ = socket.recv_fds(self._socket, 1, 1, socket.MSG_CMSG_CLOEXEC)
        if not descriptors:
            raise ConnectionError("the other end closed the connection, or lends no memory")
        try:
            seals = fcntl.fcntl(descriptors[0], fcntl.F_GET_SEALS)
            length = os.fstat(descriptors[0]).st_size
            if not seals & fcntl.F_SEAL_SHRINK or length < size:
                raise ConnectionError(f"{length} shared bytes for {size}, seals {seals}")
            return mapped(descriptors[0])
        finally:
            os.close(descriptors[0])


def room(shapes: Sequence[Shape]) -> int:
    """The bytes of arrays that lie one after the other."""
    return _starts(shapes)[-1]


def views(memory: Array, shapes: Sequence[Shape]) -> list[Array]:
    """Arrays that lie in some bytes one after the other, and keep them."""
    arrays = []
    for (shape, dtype), start in zip(shapes, _starts(shapes), strict=False):
        end = start + math.prod(shape) * dtype.itemsize
        arrays.append(memory[start:end].view(dtype).reshape(shape))
    return arrays


def mapped(descriptor: int) -> Array:
    """The bytes of a descriptor's memory."""
    return np.frombuffer(mmap.mmap(descriptor, 0), np.uint8)


def _starts(shapes: Sequence[Shape]) -> list[int]:
    """Where arrays begin, and where the last of them ends."""
    sizes = [math.prod(shape) * dtype.itemsize for shape, dtype in shapes]
    # TVM's kernels load whole vectors.
    return list(accumulate((size + -size % ALIGNMENT for size in sizes), initial=0))


def _allocate(size: int) -> int:
    descriptor = os.memfd_create("autosplit", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.posix_fallocate(descriptor, 0, size)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
