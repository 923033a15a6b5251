"""Op times in TVM's virtual machine.

On local cores, ops are timed inside the whole model: TVM calls an instrument around every kernel,
so each op finds the caches as the op before it left them.

On a GPU or a server each op runs by itself, on its real inputs, as a function of one library. TVM's
evaluator uses the device's own clock, so no measured time contains a transfer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from autosplit.errors import ModelError
from autosplit.extras import relax, tvm
from autosplit.hardware.codegen.link import ENTRY, Linker
from autosplit.hardware.devices.device import Cores
from autosplit.hardware.execution.stage_spec import Port, StageSpec
from autosplit.hardware.measurement.results import Profile
from autosplit.hardware.profiling.timing import MS, on_cores, repeated_ms
from autosplit.lowering.layout.order import to_last

_MIN_SAMPLES, _MAX_SAMPLES = 4, 60

Item = Mapping[str, np.ndarray[Any, Any]]
Call = tuple[str, float]
"""The symbol of a kernel and the milliseconds that one call of it took."""


def inside_model(
    linker: Linker, whole: StageSpec, item: Item, cores: Cores, seconds: float
) -> Profile:
    """Time every op of the unsplit model, in order, on ``cores`` for about ``seconds``."""
    lowered, kernels = linker.lowered, linker.kernels
    symbols = {name: c.region for name, c in lowered.composites.items()} | dict(kernels.symbols)
    # The other kernels only change the layout of the model's inputs and outputs.
    timed = {symbols.get(op.kernel, op.kernel) for op in lowered.graph.ops}
    # Not merged: the composites of a merged region cannot be timed one by one.
    module = linker.link({ENTRY: whole}, merge=False)
    inputs = [item[port.name] for port in whole.inputs]
    rounds = on_cores(cores, lambda: _timed_rounds(module, inputs, cores, timed, seconds))
    samples: list[list[float]] = []
    position = 0
    for op in lowered.graph.ops:
        symbol = symbols.get(op.kernel)
        if position < len(rounds[0]) and rounds[0][position][0] == symbol:
            samples.append([calls[position][1] for calls in rounds])
            position += 1
        elif symbol is None:
            samples.append([0.0])  # nothing is computed for a constant
        else:
            raise ModelError(f"op '{op.name}' did not run in the order of the graph; report a bug")
    return Profile.of_samples(str(cores), samples)


def _timed_rounds(
    module: Any, inputs: Sequence[Any], cores: Cores, timed: set[str], seconds: float
) -> list[list[Call]]:
    """The timed kernel calls of every run, except the first run, which is a warm-up."""
    rounds: list[list[Call]] = []
    start = 0.0

    def instrument(_: Any, symbol: str, before: bool, *__: Any) -> int:
        nonlocal start
        now = time.perf_counter()
        if before:
            start = time.perf_counter()
        elif symbol in timed:
            rounds[-1].append((symbol, (now - start) * MS))
        return 0

    def run_round() -> None:
        rounds.append([])
        machine[ENTRY](*values)

    cores.bind_kernels()
    machine = relax.VirtualMachine(module, cores.tvm_device())
    machine.set_instrument(instrument)
    values = [tvm.runtime.tensor(v) for v in inputs]
    repeated_ms(run_round, seconds)
    return rounds[1:]


def as_inside(stage: StageSpec, channels_last: Collection[str]) -> StageSpec:
    """A stage whose ports have the layout they have inside a larger one, some channels last."""

    def inside(port: Port) -> Port:
        axes = to_last(len(port.shape)) if port.name in channels_last else range(len(port.shape))
        return replace(port, shape=tuple(port.shape[axis] for axis in axes))

    inputs, outputs = map(inside, stage.inputs), map(inside, stage.outputs)
    return replace(stage, inputs=tuple(inputs), outputs=tuple(outputs))


def single_ops(
    linker: Linker,
    stages: Sequence[StageSpec],
    supported: Collection[str],
    item: Item,
    machine: Any,
    tvm_device: Any,
    seconds: float,
) -> list[list[float]]:
    """Time every op in ms in ``machine``, which holds a library of the ``supported`` ops.

    The time of an unsupported op is infinite, and later ops read zeros as its outputs. A constant
    takes no time.
    """
    kernels, composites = linker.kernels, linker.lowered.composites
    computed = kernels.symbols.keys() | composites.keys()
    last_reader = {port.name: stage.index for stage in stages for port in stage.inputs}
    tensors: dict[str, Any] = {}
    samples: list[list[float]] = []
    for op, stage in zip(linker.lowered.graph.ops, stages, strict=True):
        for port in stage.inputs:
            if port.name not in tensors:
                array = item[port.name].reshape(port.shape)  # not transposed: any values will do
                tensors[port.name] = tvm.runtime.tensor(array, tvm_device)
        if op.name not in supported:
            for port in stage.outputs:
                zeros = np.zeros(port.shape, port.dtype)
                tensors[port.name] = tvm.runtime.tensor(zeros, tvm_device)
            samples.append([math.inf])
            continue
        machine.set_input(op.name, *(tensors[port.name] for port in stage.inputs))
        if op.kernel in computed:
            samples.append(_sample(machine, tvm_device, op.name, seconds / len(stages)))
        else:
            machine.invoke_stateful(op.name)
            samples.append([0.0])
        for i, port in enumerate(stage.outputs):
            tensors[port.name] = machine._get_output(op.name, i)
        for port in stage.inputs:
            if last_reader[port.name] == stage.index:
                tensors.pop(port.name, None)  # frees the device's memory
    return samples


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
