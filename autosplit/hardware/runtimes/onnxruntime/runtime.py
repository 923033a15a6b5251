"""Stages in onnxruntime: each submodel in a session of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autosplit.hardware.devices.device import Cores, Device
from autosplit.hardware.execution.wiring import Port, StagePorts
from autosplit.hardware.runtimes.interface import Item
from autosplit.hardware.runtimes.onnx import model_file
from autosplit.hardware.runtimes.onnx.runtime import SubmodelRuntime
from autosplit.hardware.runtimes.onnx.time_shares import ExecutedNode, Samples
from autosplit.hardware.runtimes.onnxruntime.profile import time_nodes
from autosplit.hardware.runtimes.onnxruntime.session import require_onnxruntime
from autosplit.hardware.runtimes.onnxruntime.stage import SessionStage


class OnnxruntimeRuntime(SubmodelRuntime):
    """Implements Runtime for a model that was read from an ONNX file."""

    name = "onnxruntime"

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

    def time_nodes(
        self, submodel: Any, item: Item, cores: Cores, seconds: float
    ) -> tuple[Samples, list[ExecutedNode]]:
        """See SubmodelRuntime."""
        return time_nodes(self.original, submodel, item, cores, seconds)

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
