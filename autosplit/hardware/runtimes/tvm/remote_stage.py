"""A stage on a TVM RPC server: its library is sent once, tensors with every item."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autosplit.errors import StageError
from autosplit.hardware.codegen.link import ENTRY
from autosplit.hardware.devices.server_connection import ServerConnection
from autosplit.hardware.execution.wiring import Port
from autosplit.hardware.runtimes.arrays import array_of


class RpcStage:
    """Implements Stage. Its results are numpy arrays in this machine's memory.

    ``write`` makes the stage's library; a library of the same ``key`` is sent once.
    """

    def __init__(
        self,
        connection: ServerConnection,
        key: str,
        write: Callable[[Path], object],
        inputs: Sequence[Port],
        output_count: int,
    ) -> None:
        self._output_count = output_count
        self._connection: ServerConnection | None = connection
        self._machine: Any = None
        self._inputs: list[Any] = []
        module = connection.load(key, write)
        with connection.guarded("a stage was set up"):
            self._machine = server_machine(module, connection)
            self._inputs = [empty(port, connection.tvm_device) for port in inputs]

    def open(self) -> None:
        """The calling thread only waits for the server, so it is not pinned."""

    def run(self, values: Sequence[Any]) -> Sequence[Any]:
        """See Stage. Raises DeviceLost where the server is gone or does not answer."""
        connection, machine = self._connection, self._machine
        if connection is None or machine is None:
            raise StageError("the stage is closed; make a new pipeline")
        with connection.guarded("a stage ran"):
            for tensor, value in zip(self._inputs, values, strict=True):
                send(value, tensor)
            machine.set_input(ENTRY, *self._inputs)
            machine.invoke_stateful(ENTRY)
            outputs = [machine._get_output(ENTRY, i) for i in range(self._output_count)]
            return tuple(output.numpy() for output in outputs)

    def close(self) -> None:
        """Free the stage's memory on the server, and the server where nothing else uses it."""
        if self._connection is not None:
            # Each freed tensor is a call. One question ends the connection to a server that hangs,
            # and the calls fail at once.
            self._connection.is_alive  # noqa: B018
        self._machine, self._inputs, self._connection = None, [], None


def server_machine(module: Any, connection: ServerConnection) -> Any:
    """The virtual machine of a library that was loaded on a server."""
    from tvm import relax

    return relax.VirtualMachine(module, connection.tvm_devices)


def empty(port: Port, tvm_device: Any) -> Any:
    """Memory for a tensor on a TVM device."""
    import tvm

    return tvm.runtime.empty(port.shape, port.dtype, tvm_device)


def send(value: Any, tensor: Any) -> None:
    """Copy an array or a tensor into the memory of ``tensor``, which may be on another device."""
    array = array_of(value)
    if array.size:
        tensor.copyfrom(np.ascontiguousarray(array))
