"""Who says what a model computes: something that runs the original model, and none of the stages.

onnxruntime for an ONNX file, torch for an exported program; a Relax module is compiled by TVM op by op, unfused and unsplit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from autosplit.errors import ModelError, line_of
from autosplit.frontend import importing
from autosplit.frontend.source import SourceModel
from autosplit.hardware.codegen.target import target_of
from autosplit.hardware.measurement.parity import onnxruntime_outputs
from autosplit.lowering.fuse.indices import bound_indices
from autosplit.lowering.special_values import keep_special_values_in

Item = Mapping[str, np.ndarray[Any, Any]]
Outputs = dict[str, np.ndarray[Any, Any]]


class Judge(Protocol):
    """Computes the outputs of a model by other means than its stages."""

    @property
    def name(self) -> str:
        """What it is, for a message."""
        ...

    def outputs(self, items: Sequence[Item]) -> list[Outputs]:
        """The outputs of each item by name. Raises MachineError where a package is missing, ModelError where it refuses."""
        ...


@dataclass(frozen=True)
class OnnxRuntime:
    """Judges by onnxruntime on the original file."""

    path: Path
    name: str = "onnxruntime"

    def outputs(self, items: Sequence[Item]) -> list[Outputs]:
        """See Judge."""
        return onnxruntime_outputs(self.path, items)


@dataclass(frozen=True)
class Unfused:
    """Judges a Relax module by TVM itself, one kernel an op, nothing fused, nothing split."""

    source: SourceModel
    target: Any
    name: str = "TVM without fusion"

    @cached_property
    def _main(self) -> Any:
        import tvm
        from tvm import relax
        from tvm.relax import backend
        from tvm.relax import transform as t

        module = bound_indices(self.source.module)
        with self.target:
            for step in (
                t.DecomposeOpsForInference(),
                backend.DispatchSampling(),
                backend.DispatchSortScan(),
                t.LegalizeOps(),
                keep_special_values_in,
            ):
                module = step(module)
            try:
                built = relax.build(module, self.target)
            except Exception as error:
                reason = line_of(error, last=True)
                raise ModelError(f"TVM cannot build the module as it is: {reason}") from error
        return relax.VirtualMachine(built, tvm.cpu())["main"]

    def outputs(self, items: Sequence[Item]) -> list[Outputs]:
        """See Judge."""
        import tvm

        found = []
        for item in items:
            result = self._main(
                *(tvm.runtime.tensor(np.asarray(item[i.name])) for i in self.source.inputs)
            )
            values = [result] if hasattr(result, "numpy") else list(result)
            found.append(
                {name: v.numpy() for name, v in zip(self.source.outputs, values, strict=True)}
            )
        return found


@dataclass(frozen=True)
class Torch:
    """Judges an exported program by torch."""

    source: SourceModel
    name: str = "torch"

    def outputs(self, items: Sequence[Item]) -> list[Outputs]:
        """See Judge."""
        from autosplit.frontend.torch import importer

        return [importer.outputs(self.source, item) for item in items]


def judge_of(source: SourceModel, path: Path | None, target: Any) -> Judge:
    """The judge of a model that was imported from ``path``, or from an object."""
    if source.format == "torch":
        return Torch(source)
    if source.format == "relax" or path is None:
        return Unfused(source, target)
    return OnnxRuntime(path)


def judge_of_file(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> Judge:
    """The judge of a model file whose inputs have these shapes; an ONNX file is not read for it."""
    if path.suffix not in importing.SUFFIXES:
        return OnnxRuntime(path)
    return judge_of(importing.read(path, shapes), path, target_of())
