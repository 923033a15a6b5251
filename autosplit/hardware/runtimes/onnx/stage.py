"""What stages have in common that run an ONNX model on local cores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from autosplit.errors import ModelError
from autosplit.hardware.devices.device import Cores
from autosplit.hardware.execution.wiring import Port
from autosplit.hardware.runtimes.arrays import array_of


class SubmodelStage:
    """Implements Stage beside ``run``; the model has inputs and outputs by the ports' names."""

    def __init__(self, inputs: Sequence[Port], outputs: Sequence[Port], cores: Cores) -> None:
        self._cores = cores
        self._inputs = [p.name for p in inputs]
        self._outputs = [p.name for p in outputs]

    def open(self) -> None:
        """Pin the calling thread to the stage's cores."""
        self._cores.bind()

    def close(self) -> None:
        """The loaded model ends with its last reference."""

    def _require_tensors(self, inputs: Iterable[str], outputs: Iterable[str]) -> None:
        """Raises ModelError where the model has other inputs or outputs than the ports."""
        _require_names("inputs", self._inputs, list(inputs))
        _require_names("outputs", self._outputs, list(outputs))

    def _feed(self, values: Sequence[Any]) -> dict[str, Any]:
        """The array of each input."""
        return dict(zip(self._inputs, map(array_of, values), strict=True))


def _require_names(kind: str, ports: list[str], tensors: list[str]) -> None:
    if sorted(ports) != sorted(tensors):
        raise ModelError(
            f"the stage's {kind} are {', '.join(ports)}, those of its ONNX model are "
            f"{', '.join(tensors)}; export it again"
        )
