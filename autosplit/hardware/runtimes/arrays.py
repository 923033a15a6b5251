"""Conversion of tensors between runtimes, without a copy where possible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from autosplit.extras import tvm, tvm_ffi

ALIGNMENT = 64  # of every tensor's memory in bytes: TVM's kernels load whole vectors


def array_of(value: Any) -> np.ndarray[Any, Any]:
    """Convert a value to an array, which shares the memory of a tensor on this processor."""
    if isinstance(value, np.ndarray):
        return value
    try:
        return np.from_dlpack(value)
    # The tensor is on a GPU or on another machine, or numpy lacks its type.
    except (BufferError, RuntimeError, TypeError, AttributeError):
        return np.asarray(value.numpy())


def tensor_of(value: Any, tvm_device: Any) -> Any:
    """Convert a value to a tensor on a device, which shares an array's memory if TVM can use it."""
    if isinstance(value, tvm.runtime.Tensor) and value.device == tvm_device:
        return value
    array = array_of(value)
    # TVM copies arrays with types of other packages, arrays for other devices, and empty arrays,
    # whose strides are not those that TVM expects.
    if array.dtype.kind not in "biuf" or tvm_device != tvm.cpu() or not array.size:
        return tvm.runtime.tensor(array, tvm_device)
    # Numpy does not export read-only memory.
    if not (array.flags.c_contiguous and array.flags.writeable) or array.ctypes.data % ALIGNMENT:
        array = aligned_copy(array)
    return tvm_ffi.from_dlpack(array)


def dtype_of(name: str) -> np.dtype[Any]:
    """The numpy type of that name; ml_dtypes provides the types that numpy itself lacks."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes  # noqa: F401  registers bfloat16 and similar types

        return np.dtype(name)


def aligned_empty(shape: Sequence[int], dtype: Any) -> np.ndarray[Any, Any]:
    """Memory for an array that TVM can use without a copy."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return np.ndarray(shape, dtype, memory, start)


def aligned_copy(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Copy an array to memory that TVM can use; for small arrays 5 times as fast as TVM's copy."""
    copy = aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return copy
