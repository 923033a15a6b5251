"""Stages in OpenVINO: each submodel compiled for the processor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autosplit.hardware.devices.device import Cores, Device
from autosplit.hardware.execution.wiring import Port, StagePorts
from autosplit.hardware.runtimes.onnx import model_file
from autosplit.hardware.runtimes.onnx.runtime import SubmodelRuntime
from autosplit.hardware.runtimes.openvino.old_softmax import with_flat_softmax
from autosplit.hardware.runtimes.openvino.profile import time_nodes
from autosplit.hardware.runtimes.openvino.stage import (
    OpenvinoStage,
    compile_model,
    require_openvino,
)


class OpenvinoRuntime(SubmodelRuntime):
    """Implements Runtime for a model that was read from an ONNX file."""

    name = "openvino"
    time_nodes = staticmethod(time_nodes)
    has_hint = True

    @property
    def version(self) -> str:
        """See SubmodelRuntime."""
        return str(require_openvino().__version__)

    def submodel(self, ports: StagePorts) -> Any:
        """See SubmodelRuntime."""
        return with_flat_softmax(super().submodel(ports))

    def stage(self, ports: StagePorts, device: Device) -> OpenvinoStage:
        """See Runtime."""
        cores = self.cores(device)
        compiled = self._compiled(ports, cores)
        return OpenvinoStage(compiled, ports.inputs, ports.outputs, cores)

    def whole(
        self, ports: StagePorts, device: Device, by_hint: bool = False
    ) -> list[OpenvinoStage]:
        """See Runtime; by its hint OpenVINO says how many inferences it would compute at once."""
        if not by_hint:
            return [self.stage(ports, device)]
        cores = self.cores(device)
        compiled = self._compiled(ports, cores, NUM_STREAMS="AUTO", PERFORMANCE_HINT="THROUGHPUT")
        count = int(compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS"))
        return [OpenvinoStage(compiled, ports.inputs, ports.outputs, cores) for _ in range(count)]

    @staticmethod
    def load_stage(
        file: Path, sha256: str, inputs: Sequence[Port], outputs: Sequence[Port], device: Device
    ) -> OpenvinoStage:
        """See Runtime."""
        cores = OpenvinoRuntime.cores(device)
        return OpenvinoStage(compile_model(file, cores), inputs, outputs, cores)

    def _compiled(self, ports: StagePorts, cores: Cores, **options: Any) -> Any:
        with model_file.loadable(self.submodel(ports)) as model:
            return compile_model(model, cores, **options)
