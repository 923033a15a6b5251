"""A stage in TVM's virtual machine on this machine, and the library of a stage file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autosplit.hardware.devices.device import Cores, LocalDevice
from autosplit.hardware.runtimes.arrays import tensor_of


class VmStage:
    """Implements Stage on a set of local cores or a local GPU.

    ``module`` was linked here or loaded from a stage file. ``weights`` are tensors that it takes
    after its inputs.
    """

    def __init__(self, module: Any, device: LocalDevice, weights: Sequence[Any] = ()) -> None:
        self._device = device
        self._tvm_device = device.tvm_device()
        self._is_local = isinstance(device, Cores)
        self._weights = tuple(weights)
        self._main = local_machine(module, device)["main"]

    def open(self) -> None:
        """Pin the calling thread and its kernel threads to the stage's cores."""
        self._device.bind()
        self._device.bind_kernels()

    def run(self, values: Sequence[Any]) -> Sequence[Any]:
        """See Stage. Values in the same memory are not copied where TVM can use them."""
        tensors = [tensor_of(value, self._tvm_device) for value in values]
        results = tuple(self._main(*tensors, *self._weights))
        if not self._is_local:
            self._tvm_device.sync()  # a call only starts the kernels of a GPU
        return results

    def close(self) -> None:
        """The machine ends with its last reference."""


def local_machine(module: Any, device: LocalDevice) -> Any:
    """The virtual machine of a linked or loaded library on a device of this machine."""
    import tvm
    from tvm import relax

    tvm_devices = [device.tvm_device()]
    if not isinstance(device, Cores):
        tvm_devices.append(tvm.cpu())  # what a GPU does not compute, shapes for example
    return relax.VirtualMachine(module, tvm_devices)


def load_library(file: Path) -> Any:
    """The library in a file, whose path no library was loaded from before.

    The loader knows a library by its path and would return the one that it loaded first.
    """
    import tvm  # noqa: F401  registers the loaders of TVM's libraries
    import tvm_ffi

    return tvm_ffi.load_module(str(file))
