"""Tensors as stages of different runtimes hand them to each other, without a copy if possible."""

from __future__ import annotations

from typing import Any

import numpy as np

_ALIGNMENT = 64  # of every tensor's memory in bytes: TVM's kernels load whole vectors


def array_of(value: Any) -> np.ndarray[Any, Any]:
    """A value as an array, which shares the memory of a tensor on this machine's processor."""
    if isinstance(value, np.ndarray):
        return value
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError):  # a GPU's tensor, or a type that numpy lacks
        array: np.ndarray[Any, Any] = value.numpy()
        return array


def tensor_of(value: Any, tvm_device: Any) -> Any:
    """A value as a tensor on a device, which shares the memory of an array that TVM can use."""
    import tvm
    import tvm_ffi

    if isinstance(value, tvm.runtime.Tensor) and value.device == tvm_device:
        return value
    array = array_of(value)
    # Types of other packages, and processors that are not this one's, take TVM's own copy.
    if array.dtype.kind not in "biuf" or tvm_device != tvm.cpu():
        return tvm.runtime.tensor(array, tvm_device)
    # Numpy does not hand out memory that must not be written.
    if not (array.flags.c_contiguous and array.flags.writeable) or _address(array) % _ALIGNMENT:
        array = _aligned_copy(array)
    return tvm_ffi.from_dlpack(array)


def _address(array: np.ndarray[Any, Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _aligned_copy(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy that TVM can use: a fifth of the time that TVM's own copy of a small array takes."""
    memory = np.empty(array.nbytes + _ALIGNMENT, np.uint8)
    start = -_address(memory) % _ALIGNMENT
    copy: np.ndarray[Any, Any] = memory[start : start + array.nbytes].view(array.dtype)
    copy = copy.reshape(array.shape)
    copy[...] = array
    return copy
