"""One stage, loaded and ready to run on its device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from autosplit.hardware.devices.device import Cores, Cuda


class Stage(Protocol):
    """What a pipeline drives, from one thread of its own a stage.

    Values are opaque: a stage takes numpy arrays and whatever other stages returned, and has ``numpy()`` on what it returns.
    """

    def open(self) -> None:
        """Called once, in the stage's thread, before the first run."""
        ...

    def run(self, values: Sequence[Any]) -> Sequence[Any]:
        """Compute the outputs for inputs in the order of the stage's ports."""
        ...

    def close(self) -> None:
        """Called once the stage runs no more: let go of what must not wait for Python to do so."""
        ...


class VmStage:
    """A stage in TVM's virtual machine, on a set of local cores or a local GPU.

    ``module`` is what ``link`` made or what was loaded from a stage file; ``weights`` are tensors it takes after its inputs.
    """

    def __init__(self, module: Any, device: Cores | Cuda, weights: Sequence[Any] = ()) -> None:
        import tvm
        from tvm import relax

        self._device = device
        self._tvm_device = device.tvm_device()
        self._is_local = isinstance(device, Cores)
        tvm_devices = self._tvm_device if self._is_local else [self._tvm_device, tvm.cpu()]
        self._weights = tuple(weights)
        self._main = relax.VirtualMachine(module, tvm_devices)["main"]

    def open(self) -> None:
        """Keep the calling thread and its kernel threads on the stage's cores."""
        self._device.bind()
        self._device.bind_kernels()

    def run(self, values: Sequence[Any]) -> Sequence[Any]:
        """See Stage; results of other TVM stages are taken without a copy where they lie in the same memory."""
        results = tuple(self._main(*map(self._accepted, values), *self._weights))
        if not self._is_local:
            self._tvm_device.sync()  # a GPU's kernels are only started by then
        return results

    def close(self) -> None:
        """What the machine holds goes with its last reference."""

    def _accepted(self, value: Any) -> Any:
        import tvm

        if isinstance(value, tvm.runtime.Tensor) and value.device == self._tvm_device:
            return value
        return tvm.runtime.tensor(
            value if not hasattr(value, "numpy") else value.numpy(), self._tvm_device
        )
