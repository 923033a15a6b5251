"""Stages in onnxruntime: each submodel in a session of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autosplit.errors import ModelError
from autosplit.hardware.devices.device import Cores, Device
from autosplit.hardware.execution.wiring import Port, StagePorts
from autosplit.hardware.runtimes.onnx import model_file
from autosplit.hardware.runtimes.onnx.runtime import SubmodelRuntime, SubmodelStage
from autosplit.hardware.runtimes.onnxruntime.profile import time_nodes
from autosplit.hardware.runtimes.onnxruntime.session import require_onnxruntime, session_on


class SessionStage(SubmodelStage):
    """Implements Stage with one thread a core; on a single core that is the calling thread.

    With ``spinning`` a thread that waits for work keeps its core busy: fastest where nothing else
    needs the core.
    """

    def __init__(
        self,
        model: Path | bytes,
        inputs: Sequence[Port],
        outputs: Sequence[Port],
        cores: Cores,
        spinning: bool = False,
    ) -> None:
        super().__init__(inputs, outputs, cores)
        options = {"session.intra_op.allow_spinning": str(int(spinning))}
        self._session = session_on(model, cores, options)
        _require_names("inputs", self._inputs, self._session.get_inputs())
        _require_names("outputs", self._outputs, self._session.get_outputs())

    def run(self, values: Sequence[Any]) -> Sequence[Any]:
        """See Stage. Plain arrays were measured: OrtValues and IO bindings are no faster."""
        results: Sequence[Any] = self._session.run(self._outputs, self._feed(values))
        return results


class OnnxruntimeRuntime(SubmodelRuntime):
    """Implements Runtime for a model that was read from an ONNX file."""

    name = "onnxruntime"
    time_nodes = staticmethod(time_nodes)

    @property
    def version(self) -> str:
        """See SubmodelRuntime."""
        return str(require_onnxruntime().__version__)

    def stage(self, ports: StagePorts, device: Device) -> SessionStage:
        """See Runtime."""
        return self._session_stage(ports, device, spinning=False)

    def whole(self, ports: StagePorts, device: Device, by_hint: bool = False) -> list[SessionStage]:
        """See Runtime; waiting threads spin, as they do by default in onnxruntime."""
        return [self._session_stage(ports, device, spinning=True)]

    @staticmethod
    def load_stage(
        file: Path, sha256: str, inputs: Sequence[Port], outputs: Sequence[Port], device: Device
    ) -> SessionStage:
        """See Runtime."""
        return SessionStage(file, inputs, outputs, OnnxruntimeRuntime.cores(device))

    def _session_stage(self, ports: StagePorts, device: Device, spinning: bool) -> SessionStage:
        cores = self.cores(device)
        with model_file.loadable(self.submodel(ports)) as model:
            return SessionStage(model, ports.inputs, ports.outputs, cores, spinning)


def _require_names(kind: str, ports: Sequence[str], tensors: Sequence[Any]) -> None:
    names = [tensor.name for tensor in tensors]
    if sorted(ports) != sorted(names):
        raise ModelError(
            f"the stage's {kind} are {', '.join(ports)}, those of its ONNX model are "
            f"{', '.join(names)}; export it again"
        )
