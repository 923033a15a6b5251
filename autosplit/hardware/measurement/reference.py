"""Reference implementations that the outputs of a split are compared with.

They compute the original model: onnxruntime an ONNX file, torch an exported program, and TVM a
Relax module, op by op, neither fused nor split.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from autosplit.errors import ModelError, explained
from autosplit.extras import relax, transform, tvm
from autosplit.frontend import importing
from autosplit.frontend.source import SourceModel
from autosplit.hardware import native_log
from autosplit.hardware.codegen.target import target_of
from autosplit.hardware.runtimes.onnxruntime.session import onnxruntime_step
from autosplit.lowering.fuse.indices import bound_lookups
from autosplit.lowering.special_values import keep_special_values

Item = Mapping[str, np.ndarray[Any, Any]]
Outputs = dict[str, np.ndarray[Any, Any]]
Step = Callable[[Item], Outputs]


@dataclass(frozen=True)
class Reference:
    """Computes the outputs of a model by other means than its stages; ``name`` is for messages.

    ``open()`` returns a function from an item to its outputs by name, which raises ModelError for
    a wrong item. States are inputs and outputs like any others. Opening raises MachineError if a
    package is missing, ModelError if the reference refuses the model.
    """

    name: str
    open: Callable[[], Step]


@native_log.hidden()
def _unfused_step(source: SourceModel, target: Any) -> Step:
    """A function that computes a Relax module, built with one kernel per op."""
    module = source.module
    with target:
        for change in (
            bound_lookups,
            transform.DecomposeOpsForInference(),
            relax.backend.DispatchSortScan(),
            transform.LegalizeOps(),
            tvm.tirx.transform.Apply(keep_special_values),
        ):
            module = change(module)
        with explained(ModelError, "TVM cannot build the module as it is"):
            built = relax.build(module, target)
    main = relax.VirtualMachine(built, tvm.cpu())["main"]

    def step(item: Item) -> Outputs:
        output = main(*(tvm.runtime.tensor(np.asarray(item[i.name])) for i in source.inputs))
        # A module with one output returns a tensor, with several an array of tensors.
        values = [output] if isinstance(output, tvm.runtime.Tensor) else list(output)
        return {name: v.numpy() for name, v in zip(source.outputs, values, strict=True)}

    return step


def reference_of(source: SourceModel, path: Path | None, target: Any) -> Reference:
    """The reference of a model that was imported from ``path``, or from an object."""
    if source.format == "torch":
        from autosplit.frontend.torch import importer

        return Reference("torch", partial(importer.open_program, source))
    if source.format == "relax" or path is None:
        built_once = cache(partial(_unfused_step, source, target))
        return Reference("TVM without fusion", built_once)
    return Reference("onnxruntime", partial(onnxruntime_step, path))


def reference_of_file(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> Reference:
    """The reference of a model file with these input shapes; an ONNX file is not read."""
    if path.suffix.lower() not in importing.SUFFIXES:
        return Reference("onnxruntime", partial(onnxruntime_step, path))
    # Who runs an export trusts the model that it was made from, which has this digest.
    return reference_of(importing.read(path, shapes, trust_kernels=True), path, target_of())
