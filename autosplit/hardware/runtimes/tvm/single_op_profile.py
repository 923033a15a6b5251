"""Op times on a GPU or a server: each op by itself, on its real inputs.

Each op is a function of one library. The functions run one after the other on the device, and a
result stays there as an input of the next. TVM's evaluator times each on the device's own clock,
so no measured time contains a transfer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from autosplit.hardware.codegen.kernels import Kernels
from autosplit.hardware.devices.device import Device
from autosplit.hardware.execution.stage_spec import Port, StageSpec
from autosplit.hardware.measurement.results import Profile
from autosplit.hardware.profiling.timing import MS
from autosplit.hardware.runtimes.tvm.stage import empty, send
from autosplit.lowering.fuse.lowered import Lowered

_MIN_SAMPLES, _MAX_SAMPLES = 4, 60

Item = Mapping[str, np.ndarray[Any, Any]]


def functions(
    stages: Iterable[StageSpec], lowered: Lowered, kernels: Kernels
) -> dict[str, StageSpec]:
    """The function of each op that the device supports, by name; a stage is one op.

    Opaque ops, external backends and kernels that were not compiled for the device are not
    supported.
    """
    unsupported = kernels.absent.union(lowered.composites)
    supported = {}
    for stage, op in zip(stages, lowered.graph.ops, strict=True):
        if not op.opaque and op.kernel not in unsupported:
            supported[op.name] = stage
    return supported


def profile_ops(
    lowered: Lowered,
    kernels: Kernels,
    machine: Any,
    stages: Sequence[StageSpec],
    item: Item,
    device: Device,
    tvm_device: Any,
    seconds: float,
) -> Profile:
    """Time every op in ``machine``, the virtual machine of a library with ``functions``.

    The time of an unsupported op is infinite, and ops after it compute with zeros. A view or a
    constant takes no time.
    """
    supported = functions(stages, lowered, kernels)
    last_reader = {port.name: stage.index for stage in stages for port in stage.inputs}
    tensors: dict[str, Any] = {}
    samples: list[list[float]] = []
    for stage, op in zip(stages, lowered.graph.ops, strict=True):
        name = op.name
        for port in stage.inputs:
            if port.name not in tensors:
                tensors[port.name] = _sent(item[port.name], port, tvm_device)
        if name not in supported:
            for port in stage.outputs:
                tensors[port.name] = _sent(np.zeros(port.shape, port.dtype), port, tvm_device)
            samples.append([math.inf])
            continue
        machine.set_input(name, *(tensors[port.name] for port in stage.inputs))
        if op.kernel in kernels.symbols and op.kernel not in kernels.views:
            samples.append(_sample(machine, tvm_device, name, seconds / len(stages)))
        else:
            machine.invoke_stateful(name)
            samples.append([0.0])
        for i, port in enumerate(stage.outputs):
            tensors[port.name] = machine._get_output(name, i)
        for port in stage.inputs:
            if last_reader[port.name] == stage.index:
                tensors.pop(port.name, None)  # frees the device's memory
    return Profile.of_samples(str(device), samples)


def _sample(machine: Any, tvm_device: Any, name: str, seconds: float) -> list[float]:
    """Times in ms; the evaluator runs the op once more for warm-up."""
    samples = _evaluate(machine, tvm_device, name, _MIN_SAMPLES)
    affordable = int(seconds * MS / max(min(samples), 1e-4)) - _MIN_SAMPLES
    if affordable > 0:
        samples += _evaluate(machine, tvm_device, name, min(affordable, _MAX_SAMPLES))
    return samples


def _evaluate(machine: Any, tvm_device: Any, name: str, repeat: int) -> list[float]:
    evaluate = machine.time_evaluator("invoke_stateful", tvm_device, number=1, repeat=repeat)
    return [float(seconds) * MS for seconds in evaluate(name).results]


def _sent(array: np.ndarray[Any, Any], port: Port, tvm_device: Any) -> Any:
    tensor = empty(port, tvm_device)
    send(array, tensor)
    return tensor
