"""One stage, loaded and ready to run on its device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from autosplit.hardware.devices import Cores


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


class VmStage:
    """A stage in TVM's virtual machine, on a set of local cores.

    ``module`` is what ``link`` made or what was loaded from a stage file.
    """

    def __init__(self, module: Any, cores: Cores) -> None:
        import tvm
        from tvm import relax

        self._cores = cores
        self._device = tvm.cpu()
        self._main = relax.VirtualMachine(module, self._device)["main"]

    def open(self) -> None:
        """Keep the calling thread and its kernel threads on the stage's cores."""
        self._cores.bind()
        self._cores.bind_kernels()

    def run(self, values: Sequence[Any]) -> Sequence[Any]:
        """See Stage; results of other TVM stages are taken without a copy."""
        return tuple(self._main(*map(self._accepted, values)))

    def _accepted(self, value: Any) -> Any:
        import tvm

        if isinstance(value, tvm.runtime.Tensor):
            return value
        return tvm.runtime.tensor(value if not hasattr(value, "numpy") else value.numpy(), self._device)
