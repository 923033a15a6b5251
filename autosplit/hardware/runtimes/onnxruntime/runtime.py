"""Stages in onnxruntime: submodels of the original ONNX file, each in a session of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autosplit.errors import ConfigError, SplitError
from autosplit.hardware.codegen.target import toolchain
from autosplit.hardware.devices.device import Cores, Device
from autosplit.hardware.execution.wiring import StagePorts
from autosplit.hardware.measurement.parity import require_onnxruntime
from autosplit.hardware.measurement.results import LinkCost, Profile
from autosplit.hardware.profiling import whole_model as profile
from autosplit.hardware.runtimes.onnxruntime import submodels
from autosplit.hardware.runtimes.onnxruntime.node_groups import Cover, cover
from autosplit.hardware.runtimes.onnxruntime.profile import profile_ops
from autosplit.hardware.runtimes.onnxruntime.stage import OnnxStage
from autosplit.hardware.runtimes.runtime import ONNXRUNTIME, local_cores
from autosplit.versions import machine

if TYPE_CHECKING:
    from autosplit.hardware.compiled_model import CompiledModel


@dataclass(frozen=True)
class OnnxruntimeRuntime:
    """Implements Runtime for a model that was read from an ONNX file."""

    model: CompiledModel
    suffix = ".onnx"

    @property
    def versions(self) -> str:
        """See Runtime; the graph that is split is still fused by TVM."""
        return f"{toolchain()},onnxruntime {require_onnxruntime().__version__}"

    @property
    def keep_together(self) -> tuple[tuple[int, ...], ...]:
        """Ops between which the ONNX graph has no tensor: kernels of one node, mostly."""
        return self._cover.keep_together

    def check(self, devices: Sequence[Device]) -> None:
        """See Runtime; onnxruntime runs on local cores."""
        for device in devices:
            local_cores(ONNXRUNTIME, device)

    def prepare(self, devices: Sequence[Device] = ()) -> None:
        """See Runtime."""
        self._cover  # noqa: B018  a cached property

    def stage(self, ports: StagePorts, device: Device) -> OnnxStage:
        """See Runtime."""
        return self._session(ports, local_cores(ONNXRUNTIME, device), spinning=False)

    def whole(self, ports: StagePorts, device: Device) -> OnnxStage:
        """All threads of the device are onnxruntime's own, as it sets them up by default."""
        return self._session(ports, local_cores(ONNXRUNTIME, device), spinning=True)

    def profile(self, device: Device, seconds: float, force: bool) -> Profile:
        """See Runtime."""
        model, cores = self.model, local_cores(ONNXRUNTIME, device)
        ops = ",".join(op.name for op in model.graph.ops)
        key = (self.versions, model.sha256, model.identity["shapes"], ops, str(device), machine())

        def measure() -> Profile:
            submodel = self._submodel(model.whole.stages[0])
            return profile_ops(
                submodel,
                self._original,
                model.graph,
                self._cover,
                model.items(1)[0],
                cores,
                seconds,
            )

        return profile.cached(key, measure, force)

    def link(self, device: Device) -> LinkCost:
        """See Runtime; stages share this machine's memory."""
        return LinkCost(str(local_cores(ONNXRUNTIME, device)))

    def write(self, ports: StagePorts, file: Path, device: Device) -> Path | None:
        """Write the submodel; large weights go beside it."""
        return submodels.write(self._submodel(ports), file)

    @cached_property
    def _original(self) -> submodels.Whole:
        whole = submodels.whole(self.model)
        if whole is None:
            raise ConfigError(
                f"runtime 'onnxruntime' needs an ONNX file, but '{self.model.graph.name}' was read from something else; "
                'use runtime = "tvm"'
            )
        return whole

    @cached_property
    def _cover(self) -> Cover:
        return cover(self._original, self.model.graph, self.model.lowered.outputs)

    def _submodel(self, ports: StagePorts) -> Any:
        try:
            return self._original.part(ports, "stage")
        except submodels.Absent as reason:
            raise SplitError(
                f"onnxruntime cannot run a stage that is cut so: {reason}; cut elsewhere"
            ) from reason

    def _session(self, ports: StagePorts, device: Cores, spinning: bool) -> OnnxStage:
        submodel = self._submodel(ports)
        if submodels.weight_bytes(submodel) < submodels.EXTERNAL:
            return OnnxStage(
                submodel.SerializeToString(), ports.inputs, ports.outputs, device, spinning
            )
        with tempfile.TemporaryDirectory(prefix="autosplit-stage-") as folder:
            file = Path(folder) / "stage.onnx"
            submodels.write(submodel, file)
            del submodel
            return OnnxStage(file, ports.inputs, ports.outputs, device, spinning)
