"""Stages in TVM's virtual machine, on this machine and on a TVM RPC server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from autosplit.extras import relax, tvm
from autosplit.hardware.codegen.link import ENTRY
from autosplit.hardware.devices.device import LocalDevice
from autosplit.hardware.devices.rpc import ServerConnection
from autosplit.hardware.execution.stage_spec import StageSpec
from autosplit.hardware.runtimes.arrays import array_of, tensor_of
from autosplit.hardware.runtimes.interface import Stage


class VmStage(Stage):
    """Implements Stage on a set of local cores or a local GPU.

    ``module`` was linked here or loaded from a stage file.
    """

    def __init__(self, module: Any, device: LocalDevice) -> None:
        self._device = device
        self._tvm_device = device.tvm_device()
        self._main = relax.VirtualMachine(module, self._tvm_device)["main"]

    def open(self) -> None:
        """Pin the calling thread and its kernel threads to the stage's cores."""
        self._device.bind()
        self._device.bind_kernels()

    def run(self, values: Sequence[Any]) -> Sequence[Any]:
        """See Stage. Values in the same memory are not copied where TVM can use them."""
        tensors = [tensor_of(value, self._tvm_device) for value in values]
        results = tuple(self._main(*tensors))
        self._tvm_device.sync()  # a call only starts the kernels of a GPU
        return results


class RpcStage(Stage):
    """Implements Stage on a TVM RPC server; the calling thread only waits for the server.

    ``write`` writes the stage's library. Tensors are sent with every item. Results are arrays in
    this machine's memory.
    """

    def __init__(
        self, connection: ServerConnection, write: Callable[[Path], Any], spec: StageSpec
    ) -> None:
        self._output_count = len(spec.outputs)
        self._connection: Any = connection  # None once the stage is closed
        self._library: Any = connection.load(write)
        with connection.guarded("a stage was set up"):
            there = connection.tvm_device
            self._machine: Any = relax.VirtualMachine(self._library, there)
            self._inputs = [tvm.runtime.empty(p.shape, p.dtype, there) for p in spec.inputs]

    def run(self, values: Sequence[Any]) -> Sequence[Any]:
        """See Stage. Raises StageError where the server is gone or does not answer."""
        machine = self._machine
        with self._connection.guarded("a stage ran"):
            for tensor, value in zip(self._inputs, values, strict=True):
                array = array_of(value)
                if array.size:
                    tensor.copyfrom(array)
            machine.set_input(ENTRY, *self._inputs)
            machine.invoke_stateful(ENTRY)
            outputs = [machine._get_output(ENTRY, i) for i in range(self._output_count)]
            return tuple(output.numpy() for output in outputs)

    def close(self) -> None:
        """Free the stage's memory on the server; end the connection if nothing else uses it."""
        if self._connection is not None:
            # Freeing a tensor is a remote call. If the server hangs, this check ends the
            # connection, so that those calls fail at once.
            self._connection.is_alive  # noqa: B018
        self._machine, self._inputs, self._library, self._connection = None, [], None, None
