"""Stages in onnxruntime: each submodel in a session of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from autosplit.hardware.codegen.target import toolchain
from autosplit.hardware.devices.device import Device
from autosplit.hardware.execution.wiring import Port, StagePorts
from autosplit.hardware.measurement.results import Profile
from autosplit.hardware.profiling import profile_cache
from autosplit.hardware.runtimes.onnx import model_file
from autosplit.hardware.runtimes.onnx.runtime import SubmodelRuntime
from autosplit.hardware.runtimes.onnxruntime.profile import profile_ops
from autosplit.hardware.runtimes.onnxruntime.session import require_onnxruntime
from autosplit.hardware.runtimes.onnxruntime.stage import SessionStage
from autosplit.versions import machine


class OnnxruntimeRuntime(SubmodelRuntime):
    """Implements Runtime for a model that was read from an ONNX file."""

    name = "onnxruntime"

    @property
    def versions(self) -> str:
        """See Runtime; the graph that is split was fused by TVM."""
        return f"{toolchain()},onnxruntime {require_onnxruntime().__version__}"

    def stage(self, ports: StagePorts, device: Device) -> SessionStage:
        """See Runtime."""
        return self._session_stage(ports, device, spinning=False)

    def whole(self, ports: StagePorts, device: Device) -> SessionStage:
        """See Runtime; waiting threads spin, as they do by default in onnxruntime."""
        return self._session_stage(ports, device, spinning=True)

    def profile(self, device: Device, seconds: float, force: bool) -> Profile:
        """See Runtime."""
        source, cores = self.source, self.cores(device)

        def measure() -> Profile:
            submodel = self.submodel(source.whole)
            item = source.items(1)[0]
            return profile_ops(
                submodel, self.original, source.graph, self.groups, item, cores, seconds
            )

        ops = ",".join(op.name for op in source.graph.ops)
        key = (self.versions, source.sha256, source.input_shapes, ops, str(device), machine())
        return profile_cache.cached(key, measure, force)

    @staticmethod
    def load_stage(
        file: Path, sha256: str, inputs: Sequence[Port], outputs: Sequence[Port], device: Device
    ) -> SessionStage:
        """See Runtime."""
        return SessionStage(file, inputs, outputs, OnnxruntimeRuntime.cores(device))

    def _session_stage(self, ports: StagePorts, device: Device, spinning: bool) -> SessionStage:
        cores = self.cores(device)
        submodel = self.submodel(ports)
        if not model_file.has_large_weights(submodel):
            model = submodel.SerializeToString()
            return SessionStage(model, ports.inputs, ports.outputs, cores, spinning)
        with tempfile.TemporaryDirectory(prefix="autosplit-stage-") as folder:
            file = Path(folder) / "stage.onnx"
            model_file.write(submodel, file)
            del submodel  # the session reads its own copy of the weights
            return SessionStage(file, ports.inputs, ports.outputs, cores, spinning)
