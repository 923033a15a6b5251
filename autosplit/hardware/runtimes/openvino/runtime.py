"""Stages in OpenVINO: each submodel compiled for the processor."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

from autosplit.errors import ConfigError, ModelError
from autosplit.frontend.onnx.static_shapes import asks_for_shape
from autosplit.hardware.devices.device import Cores, Device, available, can_pin
from autosplit.hardware.execution.stage_spec import StageSpec
from autosplit.hardware.profiling.timing import MS, on_cores, repeated_ms
from autosplit.hardware.runtimes.interface import Item, Stage, closed_on_error
from autosplit.hardware.runtimes.onnx import model_file
from autosplit.hardware.runtimes.onnx.node_groups import ExecutedNodes, Samples
from autosplit.hardware.runtimes.onnx.runtime import SubmodelRuntime
from autosplit.hardware.runtimes.onnx.submodels import OnnxModel
from autosplit.hardware.runtimes.openvino.process import ProcessStage
from autosplit.hardware.runtimes.openvino.rewrites import with_flat_softmax, with_relayed_inputs
from autosplit.hardware.runtimes.openvino.stage import (
    OpenvinoStage,
    Precision,
    compile_model,
    supports,
)

# A counter is the mean over all runs of a compiled model, so each sample needs a new model.
_SAMPLES = 3
_ORIGINAL_NAMES = "originalLayersNames"
_WIDE = (6, 7)  # int32 and int64 in a TensorProto
_LINEAR = ("Add", "Cast", "Identity", "Reshape", "Sub", "Unsqueeze")


def runs_here(cores: Cores) -> bool:
    """Whether a stage can run in this process: on one core, or on all that the process has."""
    return len(cores.numbers) == 1 or not can_pin() or {*cores.numbers} == {*available()}


def _inexact_quotient(graph: Any) -> str:
    """The result of a Mod of floats, or of a division of a product of integers; else empty."""
    types = {value.name: value.type.tensor_type.elem_type for value in graph.input}
    varying, products = {*types}, set[str]()
    types |= {weight.name: weight.data_type for weight in graph.initializer}
    for node in graph.node:
        if asks_for_shape(node) or varying.isdisjoint(node.input):
            continue
        varying.update(node.output)
        of_product = not products.isdisjoint(node.input)
        is_of_integers = any(types.get(name) in _WIDE for name in node.input)
        divides = node.op_type == "Mod" or (node.op_type == "Div" and is_of_integers)
        if divides and (of_product or any(a.i for a in node.attribute)):  # fmod is for floats
            return str(node.output[0])
        if node.op_type == "Mul" or (of_product and node.op_type in _LINEAR):
            products.update(node.output)
    return ""


class OpenvinoRuntime(SubmodelRuntime):
    """Implements Runtime for a model that was read from an ONNX file."""

    name = extra = "openvino"
    has_hint = True
    precision: ClassVar[Precision] = "f32"

    def require_exact(self, original: OnnxModel) -> None:
        """See SubmodelRuntime: OpenVINO computes in 24 bits."""
        reason = ""
        if "float64" in self.source.lowered.dtypes and not self.rounds_to:
            reason = f"float64 in 32 bits; '{self.source.graph.name}' needs"
        elif node := _inexact_quotient(original.proto.graph):
            reason = f"in 24 bits, too few for a number that node '{node}' divides; choose"
        if reason:
            raise ModelError(f"runtime '{self.name}' computes {reason} another --runtime")

    def submodel(self, spec: StageSpec) -> Any:
        """See SubmodelRuntime."""
        return with_flat_softmax(super().submodel(spec))

    def whole(
        self, spec: StageSpec, devices: Sequence[Device], by_hint: bool = False
    ) -> list[Stage]:
        """See Runtime; with ``by_hint`` OpenVINO chooses how many inferences run at once."""
        if not by_hint:
            return self.stages(spec, devices)
        cores = self.cores(devices[0])
        options = {"NUM_STREAMS": "AUTO", "PERFORMANCE_HINT": "THROUGHPUT"}
        with model_file.temporary(self.submodel(spec)) as file:
            compiled = compile_model(file, cores, self.precision, **options)
        count = int(compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS"))
        return [OpenvinoStage(compiled, spec, cores) for _ in range(count)]

    def time_nodes(
        self, submodel: Any, item: Item, cores: Cores, seconds: float
    ) -> tuple[Samples, ExecutedNodes]:
        """See SubmodelRuntime; uses OpenVINO's performance counters.

        On Linux, raises StageError for a model that crashes OpenVINO, as some crash 2026.4.
        """
        arrays = [item[tensor.name] for tensor in submodel.graph.input]
        spec = self.source.whole_stage
        samples: dict[str, list[float]] = {}
        compiled: Any = None

        def infer_for(seconds: float) -> Any:
            request = compiled.create_infer_request()
            repeated_ms(lambda: request.infer(arrays, share_inputs=True), seconds)
            return request

        with model_file.temporary(submodel) as file:
            # First in another process, which needs Linux, so that a crash of OpenVINO does no harm.
            if can_pin():
                with closing(ProcessStage(file, spec, cores, self.precision)) as stage:
                    stage.run(arrays)
            for _ in range(_SAMPLES):
                compiled = compile_model(file, cores, self.precision, PERF_COUNT=True)
                request = on_cores(cores, lambda: infer_for(seconds / _SAMPLES))
                for node in request.profiling_info:
                    if node.status.name == "EXECUTED":
                        node_ms = node.real_time.total_seconds() * MS
                        samples.setdefault(node.node_name, []).append(node_ms)
        return samples, executed_nodes(self.original, compiled.get_runtime_model())

    @classmethod
    def load_stages(cls, file: Path, spec: StageSpec, devices: Sequence[Device]) -> list[Stage]:
        """See Runtime.

        Each stage compiles the model for itself. Concurrent inferences with one compiled model run
        on OpenVINO's own threads, on the cores of all stages, instead of the stages' threads. That
        is faster only where reading weights is most of the work.
        """

        def loaded(cores: Cores) -> Stage:
            if runs_here(cores):
                return OpenvinoStage(compile_model(file, cores, cls.precision), spec, cores)
            return ProcessStage(file, spec, cores, cls.precision)

        return closed_on_error(map(loaded, list(map(cls.cores, devices))))


class OpenvinoBfloat16Runtime(OpenvinoRuntime):
    """OpenVINO in bfloat16, its default precision on a processor that supports this type."""

    name = "openvino-bfloat16"
    precision = "bf16"
    rounds_to = "bfloat16"

    def submodel(self, spec: StageSpec) -> Any:
        """See SubmodelRuntime."""
        return with_relayed_inputs(super().submodel(spec))

    def check(self, devices: Sequence[Device]) -> None:
        """See Runtime. Also raises ConfigError on a processor without bfloat16."""
        super().check(devices)
        if not supports("BF16"):
            raise ConfigError(
                f"runtime '{self.name}' needs a processor with bfloat16, which this one lacks; "
                "use runtime openvino"
            )


def executed_nodes(original: OnnxModel, optimised: Any) -> ExecutedNodes:
    """The nodes of OpenVINO's runtime model, each named after the first tensor that it makes."""
    nodes = {}
    for node in optimised.get_ordered_ops():
        name, info = node.get_friendly_name(), node.get_rt_info()
        # Weights and nodes that OpenVINO adds make no tensor of the original.
        names = info[_ORIGINAL_NAMES].astype(str).split(",") if _ORIGINAL_NAMES in info else [name]
        nodes[name] = [n for n in names if n in original.producers]
    return nodes
