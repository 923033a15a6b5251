"""Base classes of the runtimes whose stages are submodels of an ONNX model."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from autosplit.errors import ConfigError, SplitError
from autosplit.extras import onnx, require
from autosplit.hardware.codegen.target import toolchain
from autosplit.hardware.devices.device import Cores, Device, on_its_machine
from autosplit.hardware.execution.stage_spec import Port, StageSpec
from autosplit.hardware.measurement.results import Profile
from autosplit.hardware.profiling import profile_cache
from autosplit.hardware.profiling.timing import on_cores, repeated_ms
from autosplit.hardware.runtimes.arrays import array_of
from autosplit.hardware.runtimes.interface import Item, Runtime, Stage
from autosplit.hardware.runtimes.onnx import model_file
from autosplit.hardware.runtimes.onnx.node_groups import (
    LEAST_DISTURBED,
    ExecutedNodes,
    NodeGroups,
    Samples,
    TimeShares,
    group_ops,
)
from autosplit.hardware.runtimes.onnx.submodels import NoSubmodel, OnnxModel, read_original
from autosplit.hardware.runtimes.registry import package_of
from autosplit.versions import machine

# A model of one node on one number, and its ports.
_SMALLEST = '<ir_version: 8, opset_import: ["": 17]> g (float[1] x) => (float[1] y) {y = Relu(x)}'
_ITS_PORTS = StageSpec.planned((), [Port("x", (1,), "float32")], [Port("y", (1,), "float32")])
_LEAST_OPS = 0.1  # the least share of a run that is attributed to the ops


class SubmodelStage(Stage):
    """Implements Stage except ``run``; the model's inputs and outputs have the ports' names."""

    def __init__(self, spec: StageSpec, cores: Cores) -> None:
        self._cores = cores
        self._inputs = [p.name for p in spec.inputs]
        self._outputs = [p.name for p in spec.outputs]

    def open(self) -> None:
        """Pin the calling thread to the stage's cores."""
        self._cores.bind()

    def _feed(self, values: Sequence[Any]) -> dict[str, Any]:
        """The array of each input by name."""
        return dict(zip(self._inputs, map(array_of, values), strict=True))


class SubmodelRuntime(Runtime):
    """Implements Runtime on local cores, with ONNX submodels as stages.

    A subclass defines ``name``, ``extra``, ``whole``, ``time_nodes`` and ``load_stages``.
    """

    suffix = ".onnx"
    extra: ClassVar[str]
    """The extra by which the package of the runtime is installed."""

    @property
    def keep_together(self) -> tuple[tuple[int, ...], ...]:
        """Groups of ops that have a submodel only together, mostly the kernels of one ONNX node."""
        return tuple(ops for ops in self.groups if len(ops) > 1)

    def check(self, devices: Sequence[Device]) -> None:
        """See Runtime."""
        for device in devices:
            self.cores(device)

    def can_run(self, device: Device) -> bool:
        """See Runtime."""
        return isinstance(on_its_machine(device), Cores)

    def prepare(self, devices: Sequence[Device] = ()) -> None:
        """See Runtime."""
        self.groups  # noqa: B018  a cached property

    @property
    def versions(self) -> str:
        """See Runtime; with TVM's, as TVM fused the graph. Raises MachineError if not installed."""
        package = require(package_of(self.name), self.extra)
        return f"{toolchain()},{self.name} {package.__version__}"

    def stages(self, spec: StageSpec, devices: Sequence[Device]) -> list[Stage]:
        """See Runtime; the stages of an export are loaded in the same way."""
        with model_file.temporary(self.submodel(spec)) as file:
            return self.load_stages(file, spec, devices)

    def profile(self, device: Device, seconds: float, force: bool) -> Profile:
        """See Runtime."""
        source, cores = self.source, self.cores(device)

        def measure() -> Profile:
            submodel = self.submodel(source.whole_stage)
            # Runtimes report nodes by name, so each is named after a tensor, whose name is unique.
            for node in submodel.graph.node:
                node.name = next(o for o in node.output if o)
            item = source.items(1)[0]
            samples, nodes = self.time_nodes(submodel, item, cores, seconds)
            shares = TimeShares(self.original, source.graph, self.groups, nodes)
            return self._calibrated(shares.profile(cores, samples), item, cores, seconds / 4)

        ops = ",".join(op.name for op in source.graph.ops)
        model = self.versions, source.sha256, source.input_shapes, ops, repr(source.graph.states)
        return profile_cache.cached(("calibrated", *model, str(device), machine()), measure, force)

    def _calibrated(self, profile: Profile, item: Item, cores: Cores, seconds: float) -> Profile:
        """Correct a profile for the time that the profiler hides or adds at each node.

        The error differs between runtimes, whose profiles are compared with each other.
        """
        (whole,) = self.stages(self.source.whole_stage, [cores])
        values = [item[port.name] for port in self.source.whole_stage.inputs]
        whole_ms = _run_ms(whole, values, cores, seconds)
        with model_file.temporary(onnx.parser.parse_model(_SMALLEST)) as file:
            (smallest,) = self.load_stages(file, _ITS_PORTS, [cores])
        call_ms = _run_ms(smallest, [np.ones(1, np.float32)], cores, seconds / 4)
        return calibrated(profile, whole_ms, call_ms)

    def write(self, spec: StageSpec, file: Path, device: Device) -> Path | None:
        """Write the submodel; large weights go into a file beside it, which is returned."""
        return model_file.write(self.submodel(spec), file)

    @abstractmethod
    def time_nodes(
        self, submodel: Any, item: Item, cores: Cores, seconds: float
    ) -> tuple[Samples, ExecutedNodes]:
        """Time each node of the whole model on ``cores`` for about ``seconds``."""

    @classmethod
    def cores(cls, device: Device) -> Cores:
        """The cores of a device on its own machine. Raises ConfigError where it has none."""
        cores = on_its_machine(device)
        if not isinstance(cores, Cores):
            raise ConfigError(
                f"runtime '{cls.name}' runs on local cores, not on '{device}'; "
                "use runtime tvm there, or write cores:0"
            )
        return cores

    @cached_property
    def original(self) -> OnnxModel:
        """The ONNX model. Raises ConfigError for a model that was read from something else."""
        original = read_original(self.source)
        if original is None:
            raise ConfigError(
                f"runtime '{self.name}' needs an ONNX file or a PyTorch program, but "
                f"'{self.source.graph.name}' is neither; use runtime = \"tvm\""
            )
        self.require_exact(original)
        return original

    def require_exact(self, original: OnnxModel) -> None:
        """Raise ModelError for a model that this runtime rounds; the usual one rounds none."""

    @cached_property
    def groups(self) -> NodeGroups:
        """The groups of ops that have submodels."""
        lowered = self.source.lowered
        groups = lowered.keep_together
        return group_ops(self.original, lowered.graph, lowered.outputs, self.name, groups)

    def submodel(self, spec: StageSpec) -> Any:
        """The ONNX model of a stage. Raises SplitError where there is none."""
        try:
            return self.original.submodel(spec, "stage")
        except NoSubmodel as reason:
            raise SplitError(
                f"{self.name} cannot run a stage that is cut so: {reason}; cut elsewhere"
            ) from reason


def _run_ms(stage: Stage, values: Sequence[Any], cores: Cores, seconds: float) -> float:
    """The time of one run in ms, as a low quantile that excludes disturbances; closes the stage."""

    def measure() -> list[float]:
        stage.open()
        return repeated_ms(lambda: stage.run(values), seconds)

    with closing(stage):
        samples = on_cores(cores, measure)
    return float(np.quantile(samples[1:], LEAST_DISTURBED, method="lower"))


def calibrated(profile: Profile, whole_ms: float, call_ms: float) -> Profile:
    """Scale a profile so that its ops and one call add up to the time of the whole model."""
    total = math.fsum(profile.op_ms)
    ops_ms = max(whole_ms - call_ms, _LEAST_OPS * whole_ms)
    factor = ops_ms / total if total else 1.0
    return replace(
        profile,
        op_ms=tuple(factor * ms for ms in profile.op_ms),
        spread_ms=tuple(factor * ms for ms in profile.spread_ms),
        call_ms=call_ms,
    )
