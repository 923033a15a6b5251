"""A stage on a TVM RPC server: its library is sent there once, then inputs go and outputs come with every item."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autosplit.errors import StageError
from autosplit.hardware.codegen.link import ENTRY
from autosplit.hardware.devices.rpc import ServerConnection
from autosplit.hardware.execution.wiring import Port


class RpcStage:
    """Implements Stage. What it returns lies in this machine's memory, as numpy arrays.

    ``write`` makes the stage's library; one of the same ``key`` is sent once.
    """

    def __init__(
        self,
        connection: ServerConnection,
        key: str,
        write: Callable[[Path], object],
        inputs: Sequence[Port],
        outputs: int,
    ) -> None:
        self._outputs = outputs
        self._connection: ServerConnection | None = connection
        self._machine, self._inputs = None, []
        module = connection.load(key, write)
        with connection.guarded("a stage was set up"):
            self._machine = machine_of(connection, module)
            self._inputs = [empty(p, connection.tvm_device) for p in inputs]

    def open(self) -> None:
        """The calling thread only waits for the server, so it may run anywhere."""

    def run(self, values: Sequence[Any]) -> Sequence[Any]:
        """See Stage. Raises DeviceLost where the server has gone."""
        connection, machine = self._connection, self._machine
        if connection is None or machine is None:
            raise StageError("the stage is closed; make a new pipeline")
        with connection.guarded("a stage ran"):
            for there, value in zip(self._inputs, values, strict=True):
                send(value, there)
            machine.set_input(ENTRY, *self._inputs)
            machine.invoke_stateful(ENTRY)
            return tuple(machine._get_output(ENTRY, i).numpy() for i in range(self._outputs))

    def close(self) -> None:
        """Free what the stage holds on the server, and the server where nothing else of this process runs there."""
        self._machine, self._inputs, self._connection = None, [], None


def machine_of(connection: ServerConnection, module: Any) -> Any:
    """The virtual machine of a library that was loaded on a server."""
    from tvm import relax

    return relax.VirtualMachine(module, connection.tvm_devices)


def empty(port: Port, runtime: Any) -> Any:
    """Memory for a tensor on a TVM device."""
    import tvm

    return tvm.runtime.empty(port.shape, port.dtype, runtime)


def send(value: Any, there: Any) -> None:
    """Copy what a stage or the caller made, an array or a tensor, into the memory of a TVM device."""
    array = value.numpy() if hasattr(value, "numpy") else value
    if array.size:
        there.copyfrom(np.ascontiguousarray(array))
