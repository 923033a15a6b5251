"""A stage in a process of its own, which has the stage's cores and no others.

Tensors are in anonymous memory that both processes map: the process gets its file descriptor, and
the kernel frees the memory with the last process that maps it, even if that crashes.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from autosplit.hardware.devices import device as devices
from autosplit.hardware.devices.device import Cores
from autosplit.hardware.execution.stage_spec import Port, StageSpec
from autosplit.hardware.isolation.process import Worker
from autosplit.hardware.isolation.worker import Handler
from autosplit.hardware.profiling.timing import on_cores
from autosplit.hardware.runtimes.arrays import ALIGNMENT, aligned_copy, dtype_of
from autosplit.hardware.runtimes.onnx.runtime import SubmodelStage
from autosplit.hardware.runtimes.openvino.stage import OpenvinoStage, Precision, compile_model
from autosplit.serialization import dump, load


@dataclass(frozen=True)
class StageSetting:
    """What the process loads; ``memory`` is the descriptor of the tensors' memory."""

    file: str
    cores: Cores
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    memory: int
    precision: Precision


class ProcessStage(SubmodelStage):
    """Implements Stage in another process; this one copies tensors, on the stage's cores too."""

    def __init__(self, file: Path, spec: StageSpec, cores: Cores, precision: Precision) -> None:
        super().__init__(spec, cores)
        ports = *spec.inputs, *spec.outputs
        memory = os.memfd_create("autosplit")
        try:
            # Allocated now: without memory left, a later access to a page would kill the process.
            os.posix_fallocate(memory, 0, _starts(ports)[-1] or 1)
            arrays = _mapped(memory, ports)
            tensors = spec.inputs, spec.outputs, memory
            setting = dump(StageSetting(str(file), cores, *tensors, precision))
            # Every thread of the process inherits the cores of the thread that starts it.
            self._worker = on_cores(cores, lambda: Worker(open_stage, setting, [memory]))
        finally:
            os.close(memory)
        count = len(spec.inputs)
        self._input_arrays, self._output_arrays = arrays[:count], arrays[count:]
        self._phase = f"running OpenVINO on {cores}"
        self._end = weakref.finalize(self, self._worker.close)
        try:
            self._call(f"loading OpenVINO on {cores}")
        except BaseException:
            self.close()
            raise

    def run(self, values: Sequence[Any]) -> Sequence[Any]:
        """See Stage. Outputs are copies, because the next run writes there."""
        for shared, array in zip(self._input_arrays, self._feed(values).values(), strict=True):
            np.copyto(shared, array)
        self._call(self._phase)
        return list(map(aligned_copy, self._output_arrays))

    def close(self) -> None:
        """End the process. Idempotent."""
        self._end()

    def _call(self, phase: str) -> None:
        self._worker.call({"kind": phase}, devices.SILENCE_S)


def open_stage(document: Mapping[str, Any]) -> Handler:
    """The handler of the worker process; each job computes one item."""
    setting = load(StageSetting, document)
    compiled = compile_model(Path(setting.file), setting.cores, setting.precision)
    spec = StageSpec.planned((), setting.inputs, setting.outputs)
    stage = OpenvinoStage(compiled, spec, setting.cores)
    arrays = _mapped(setting.memory, (*setting.inputs, *setting.outputs))
    inputs, outputs = arrays[: len(setting.inputs)], arrays[len(setting.inputs) :]

    def infer(_: Mapping[str, Any]) -> None:
        for array, result in zip(outputs, stage.run(inputs), strict=True):
            np.copyto(array, result)

    return infer


def _mapped(descriptor: int, ports: Sequence[Port]) -> list[np.ndarray[Any, Any]]:
    """Arrays one after the other in the memory of a descriptor, which they keep mapped."""
    memory = np.frombuffer(mmap.mmap(descriptor, 0), np.uint8)
    pieces = [memory[start:] for start in _starts(ports)]
    return [
        piece[: port.nbytes].view(dtype_of(port.dtype)).reshape(port.shape)
        for piece, port in zip(pieces, ports, strict=False)
    ]


def _starts(ports: Sequence[Port]) -> list[int]:
    """The offset of each array in bytes, and the size of all of them."""
    # Aligned, because TVM's kernels load whole vectors.
    sizes = (port.nbytes + -port.nbytes % ALIGNMENT for port in ports)
    return list(accumulate(sizes, initial=0))
