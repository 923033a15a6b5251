"""Keeps kernels inside their buffers: clamps indices that are read from tensors.

TVM compiles a kernel as it is written, so a wrong index overwrites the memory of the process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autosplit.extras import ir, tirx, tvm_ffi


def clamped(kernel: Any) -> Any:
    """Clamp the loads and stores of a kernel to their buffers if an index is read from a tensor."""

    def bounded(access: Any) -> Any:
        if not any(map(_reads_a_tensor, access.indices)):
            return access
        if isinstance(access, ir.TensorLoad):
            return tirx.BufferLoad(access.source, _clamped(access.source, access.indices))
        indices = _clamped(access.buffer, access.indices)
        return tirx.BufferStore(access.buffer, access.value, indices)

    return tvm_ffi.structural_map(kernel, ((ir.TensorLoad, tirx.BufferStore), bounded), order="pre")


def _clamped(buffer: Any, indices: Sequence[Any]) -> list[Any]:
    results = []
    for index, size in zip(indices, buffer.ty.shape, strict=True):
        dtype = index.ty.dtype
        last = size.astype(dtype) - tirx.const(1, dtype)
        results.append(tirx.max(tirx.min(index, last), tirx.const(0, dtype)))
    return results


def _reads_a_tensor(index: Any) -> bool:
    stop = tvm_ffi.VisitInterrupt(True)
    return tvm_ffi.structural_walk(index, (ir.TensorLoad, lambda load: stop)) is not None
