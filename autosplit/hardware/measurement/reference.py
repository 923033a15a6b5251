"""Reference implementations that the outputs of a split are compared with.

They compute the original model: onnxruntime an ONNX file, torch an exported program, and TVM a
Relax module, op by op, neither fused nor split.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from autosplit.errors import ModelError, line_of
from autosplit.frontend import importing
from autosplit.frontend.relax.main_function import with_kernels
from autosplit.frontend.source import SourceModel
from autosplit.hardware.codegen.target import target_of
from autosplit.hardware.runtimes.onnxruntime.session import onnxruntime_step
from autosplit.lowering.fuse.indices import bound_lookups
from autosplit.lowering.special_values import keep_special_values

Item = Mapping[str, np.ndarray[Any, Any]]
Outputs = dict[str, np.ndarray[Any, Any]]
Step = Callable[[Item], Outputs]


class Reference(Protocol):
    """Computes the outputs of a model by other means than its stages.

    States are inputs and outputs like any others.
    """

    @property
    def name(self) -> str:
        """The name in messages."""

    def open(self, optimise: bool = True) -> Step:
        """What computes the outputs of an item by name; it raises ModelError for a wrong item.

        Without ``optimise`` it takes the model as it is, where the reference has the choice.
        Raises MachineError if a package is missing, ModelError if it refuses the model.
        """


@dataclass(frozen=True)
class OnnxruntimeReference:
    """onnxruntime on the original file."""

    path: Path
    name: str = "onnxruntime"

    def open(self, optimise: bool = True) -> Step:
        """See Reference."""
        return onnxruntime_step(self.path, optimise)


@dataclass(frozen=True)
class UnfusedReference:
    """TVM on a Relax module, one kernel an op."""

    source: SourceModel
    target: Any
    name: str = "TVM without fusion"

    @cached_property
    def _main(self) -> Any:
        import tvm
        from tvm import relax
        from tvm.relax import backend, transform

        module = self.source.module
        with self.target:
            for step in (
                bound_lookups,
                transform.DecomposeOpsForInference(),
                backend.DispatchSortScan(),
                transform.LegalizeOps(),
                lambda lowered: with_kernels(lowered, keep_special_values),
            ):
                module = step(module)
            try:
                built = relax.build(module, self.target)
            except Exception as error:
                reason = line_of(error, last=True)
                raise ModelError(f"TVM cannot build the module as it is: {reason}") from error
        return relax.VirtualMachine(built, tvm.cpu())["main"]

    def open(self, optimise: bool = True) -> Step:
        """See Reference."""
        import tvm

        main = self._main

        def step(item: Item) -> Outputs:
            output = main(
                *(tvm.runtime.tensor(np.asarray(item[i.name])) for i in self.source.inputs)
            )
            # A module with one output returns a tensor, with several an array of tensors.
            values = [output] if isinstance(output, tvm.runtime.Tensor) else list(output)
            pairs = zip(self.source.outputs, values, strict=True)
            return {name: value.numpy() for name, value in pairs}

        return step


@dataclass(frozen=True)
class TorchReference:
    """torch on an exported program."""

    source: SourceModel
    name: str = "torch"

    def open(self, optimise: bool = True) -> Step:
        """See Reference."""
        from autosplit.frontend.torch import importer

        return importer.open_program(self.source)


def reference_of(source: SourceModel, path: Path | None, target: Any) -> Reference:
    """The reference of a model that was imported from ``path``, or from an object."""
    if source.format == "torch":
        return TorchReference(source)
    if source.format == "relax" or path is None:
        return UnfusedReference(source, target)
    return OnnxruntimeReference(path)


def reference_of_file(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> Reference:
    """The reference of a model file with these input shapes; an ONNX file is not read."""
    if path.suffix not in importing.SUFFIXES:
        return OnnxruntimeReference(path)
    return reference_of(importing.read(path, shapes), path, target_of())
