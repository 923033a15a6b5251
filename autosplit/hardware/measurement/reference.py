"""Reference implementations that the outputs of a split are compared with.

They compute the original model: onnxruntime an ONNX file, torch an exported program, and TVM a
Relax module, op by op, neither fused nor split.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from autosplit.errors import ModelError, line_of
from autosplit.frontend import importing
from autosplit.frontend.source import SourceModel
from autosplit.hardware.codegen.target import target_of
from autosplit.hardware.measurement.parity import compare, distances
from autosplit.hardware.measurement.results import Accuracy
from autosplit.hardware.runtimes.onnxruntime.session import onnxruntime_outputs
from autosplit.lowering.fuse.indices import bound_lookups
from autosplit.lowering.special_values import keep_special_values_in

STEPS = 32  # of a stream that are compared at least, since errors may grow along it
Item = Mapping[str, np.ndarray[Any, Any]]
Outputs = dict[str, np.ndarray[Any, Any]]


class Reference(Protocol):
    """Computes the outputs of a model by other means than its stages."""

    @property
    def name(self) -> str:
        """The name in messages."""

    def outputs(self, items: Sequence[Item], optimise: bool = True) -> list[Outputs]:
        """The outputs of each item by name.

        Without ``optimise`` those of the model as it is, where the reference has the choice.
        Raises MachineError if a package is missing, ModelError if it refuses the model.
        """


@dataclass(frozen=True)
class OnnxruntimeReference:
    """onnxruntime on the original file."""

    path: Path
    name: str = "onnxruntime"

    def outputs(self, items: Sequence[Item], optimise: bool = True) -> list[Outputs]:
        """See Reference."""
        return onnxruntime_outputs(self.path, items, optimise)


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
        from tvm.relax import backend
        from tvm.relax import transform as t

        module = self.source.module
        with self.target:
            for step in (
                bound_lookups,
                t.DecomposeOpsForInference(),
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

    def outputs(self, items: Sequence[Item], optimise: bool = True) -> list[Outputs]:
        """See Reference."""
        import tvm

        results = []
        for item in items:
            inputs = [tvm.runtime.tensor(np.asarray(item[i.name])) for i in self.source.inputs]
            output = self._main(*inputs)
            # A module with one output returns a tensor, with several an array of tensors.
            values = [output] if isinstance(output, tvm.runtime.Tensor) else list(output)
            pairs = zip(self.source.outputs, values, strict=True)
            results.append({name: value.numpy() for name, value in pairs})
        return results


@dataclass(frozen=True)
class TorchReference:
    """torch on an exported program."""

    source: SourceModel
    name: str = "torch"

    def outputs(self, items: Sequence[Item], optimise: bool = True) -> list[Outputs]:
        """See Reference."""
        from autosplit.frontend.torch import importer

        return [importer.outputs(self.source, item) for item in items]


@dataclass(frozen=True)
class StreamReference:
    """Another reference, stepped through one stream: an item gets what the last one left.

    ``states`` has each state's input, its shape and type, and its successor among the outputs. It
    begins at zero and is neither in items nor in outputs.
    """

    reference: Reference
    states: tuple[tuple[str, tuple[int, ...], str, str], ...]

    @property
    def name(self) -> str:
        """See Reference."""
        return self.reference.name

    def outputs(self, items: Sequence[Item], optimise: bool = True) -> list[Outputs]:
        """See Reference."""
        left = {name: np.zeros(shape, dtype) for name, shape, dtype, _ in self.states}
        results = []
        for item in items:
            (outputs,) = self.reference.outputs([{**item, **left}], optimise)
            left = {name: outputs.pop(output) for name, _, _, output in self.states}
            results.append(outputs)
        return results


def accuracy_of(
    outputs: Sequence[Outputs],
    expected: Sequence[Outputs],
    kinds: Collection[str],
    asked: float | None = None,
    reference: Reference | None = None,
    items: Sequence[Item] = (),
) -> Accuracy:
    """Compare outputs with what ``reference`` expects for ``items``; ``kinds``: as in ``compare``.

    The tolerance is the one ``asked`` for, or follows from the element types. Where it does not
    suffice, the distance of the reference from itself without optimisation is added.
    """
    accuracy = compare(outputs, expected, kinds, asked=asked)
    if accuracy.equal or reference is None:
        return accuracy
    plain = reference.outputs(items, optimise=False)
    streams = max(1, len(expected) // len(plain))  # which have the same outputs, one after another
    return compare(outputs, expected, kinds, distances(expected[::streams], plain), asked)


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
