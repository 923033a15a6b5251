"""A stage in OpenVINO: a compiled model on a set of local cores.

OpenVINO takes a number of threads, not cores. A model with one thread runs in the calling thread.
A model with more also uses workers of a pool that all models of the process share. A worker can
serve any model and may run on all cores of the process, so a stage with several threads runs in
this process only if it has all of its cores. Otherwise the stage has a process of its own.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from autosplit.errors import ModelError, StageError
from autosplit.extras import require
from autosplit.hardware.devices.device import Cores
from autosplit.hardware.execution.stage_spec import Port, StageSpec
from autosplit.hardware.runtimes.arrays import dtype_of
from autosplit.hardware.runtimes.onnx.runtime import SubmodelStage
from autosplit.hardware.runtimes.registry import OF_24_BITS, OPENVINO, rounds

# Tells hwloc, with which OpenVINO binds threads, whether the topology is that of this machine.
_HWLOC_BINDS = "HWLOC_THISSYSTEM"
_loading = threading.Lock()
_is_loaded = False
Array = np.ndarray[Any, Any]
Precision = Literal["f32", "bf16"]  # OpenVINO's names
# Beginnings of the lines that precede the reason in the text of an OpenVINO error.
_PREAMBLE = ("Exception from", "Check '", "FrontEnd API", "Model wasn't", "Summary:", "While")


class OpenvinoStage(SubmodelStage):
    """Implements Stage for a compiled model on one core, or on all cores of the process.

    Raises ModelError where the model does not have the ports of ``spec``.
    """

    def __init__(self, compiled: Any, spec: StageSpec, cores: Cores) -> None:
        super().__init__(spec, cores)
        self._types = [dtype_of(port.dtype) for port in spec.outputs]
        self._wide_inputs = [p.name for p in spec.inputs if rounds(OPENVINO, p.dtype)]
        self._wide_outputs = [i for i, p in enumerate(spec.outputs) if rounds(OPENVINO, p.dtype)]
        # Matched by position: OpenVINO loses the name of an input that a Dropout node reads.
        _require_shapes("inputs", spec.inputs, compiled.inputs)
        _require_shapes("outputs", spec.outputs, compiled.outputs)
        self._request = compiled.create_infer_request()

    def run(self, values: Sequence[Any]) -> Sequence[Any]:
        """See Stage. Inputs are shared; outputs are copies, because the next run writes there."""
        feed = self._feed(values)
        for name in self._wide_inputs:
            _require_narrow(name, feed[name])
        results = self._request.infer(list(feed.values()), share_inputs=True)
        # OpenVINO returns bfloat16 as float16 with the same bits.
        outputs = [np.asarray(results[place]).view(t) for place, t in enumerate(self._types)]
        for place in self._wide_outputs:
            _require_narrow(self._outputs[place], outputs[place])
        return outputs


def require_openvino() -> Any:
    """Import OpenVINO so that it does not bind threads. Raises MachineError if not installed.

    By default every inference binds the threads, including the calling one, to all cores of the
    process, even with pinning disabled. It does this through hwloc, which is initialised once, with
    the CPU plugin, and does not bind threads if told that the topology is another machine's.
    """
    global _is_loaded
    openvino = require("openvino", "openvino")
    with _loading:
        if not _is_loaded:
            before = os.environ.get(_HWLOC_BINDS)
            os.environ[_HWLOC_BINDS] = "0"
            try:
                openvino.Core().get_property("CPU", "FULL_DEVICE_NAME")
                _is_loaded = True
            finally:
                del os.environ[_HWLOC_BINDS]
                if before is not None:
                    os.environ[_HWLOC_BINDS] = before
    return openvino


def supports(capability: str) -> bool:
    """Whether OpenVINO lists an optimisation capability, such as "BF16", for the processor."""
    return capability in require_openvino().Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


def compile_model(
    model: Path | bytes, cores: Cores, precision: Precision = "f32", **options: Any
) -> Any:
    """Compile a model for as many threads as there are ``cores``.

    ``options`` are further properties. Raises ModelError if OpenVINO refuses the model,
    MachineError without OpenVINO.
    """
    openvino = require_openvino()
    properties = {
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": len(cores.numbers),
        "ENABLE_CPU_PINNING": False,  # it chooses cores by itself, for two models the same ones
        "INFERENCE_PRECISION_HINT": precision,  # by default bf16 where the processor has it
        **options,
    }
    source = io.BytesIO(model) if isinstance(model, bytes) else str(model)
    try:
        # ``read_model`` tries every frontend, and TensorFlow's prints errors for other files.
        frontend = openvino.frontend.FrontEndManager().load_by_framework("onnx")
        network = frontend.convert(frontend.load(source))
        # Of equal values ONNX takes those with the lowest indices first.
        for op in (op for op in network.get_ops() if op.get_type_name() == "TopK"):
            settings = op.get_attributes() | {"sort": "value", "stable": True}
            stable = openvino.opset13.topk(op.input_value(0), op.input_value(1), **settings)
            stable.set_friendly_name(op.get_friendly_name())
            for output, replacement in zip(op.outputs(), stable.outputs(), strict=True):
                output.replace(replacement)
        return openvino.Core().compile_model(network, "CPU", properties)
    except Exception as error:
        raise ModelError(f"OpenVINO cannot load the model: {_reason(error)}") from error


def _require_narrow(name: str, array: Array) -> None:
    """Refuse integers too large for float32, in which OpenVINO computes many integer ops."""
    least, most = OF_24_BITS
    if array.size and not least <= array.min() <= array.max() <= most:
        raise StageError(
            f"'{name}' holds integers of more than 24 bits, which OpenVINO rounds; "
            "choose another --runtime"
        )


def _require_shapes(kind: str, ports: Sequence[Port], tensors: Sequence[Any]) -> None:
    expected = [p.shape for p in ports]
    # OpenVINO does not know every shape before it runs.
    shapes = [tuple(t.shape) if t.partial_shape.is_static else None for t in tensors]
    differ = (known not in (shape, None) for known, shape in zip(shapes, expected, strict=False))
    if len(shapes) != len(expected) or any(differ):
        raise ModelError(
            f"the stage's {kind} have the shapes {expected}, those of its ONNX model {shapes}; "
            "export it again"
        )


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines()]
    reasons = [line for line in lines if line and not line.startswith(_PREAMBLE)]
    first, *further = reasons or [type(error).__name__]
    operation, is_named, _ = first.removeprefix("-- ").partition(" with a message:")
    return ": ".join([operation, *further[:1]] if is_named else [operation])
