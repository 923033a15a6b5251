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
    is_usable = array.flags.c_contiguous and array.ctypes.data % _ALIGNMENT == 0
    # Numpy does not hand out memory that must not be written, nor types of other packages.
    if is_usable and array.flags.writeable and array.dtype.kind in "biuf" and _is_cpu(tvm_device):
        return tvm_ffi.from_dlpack(array)
    return tvm.runtime.tensor(array, tvm_device)


def _is_cpu(tvm_device: Any) -> bool:
    import tvm

    return bool(tvm_device == tvm.cpu())
