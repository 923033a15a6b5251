"""A model whose stages take items of several shapes, such as 64 tokens or one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from autosplit.errors import ConfigError
from autosplit.hardware.runtimes.registry import AUTO, ONNXRUNTIME

if TYPE_CHECKING:
    from autosplit.hardware.compiled_model import CompiledModel

ModelType = TypeVar("ModelType", bound="CompiledModel")
Shapes = Mapping[str, Sequence[int]]


def with_variants(
    load: Callable[..., ModelType], shapes: Shapes, variants: Mapping[str, Shapes], runtime: str
) -> ModelType:
    """Load, with ``load``, a model whose stages take the items of all ``variants``.

    ``shapes`` are common to all variants. The result is the model of the smallest items.

    Raises ConfigError where its stages cannot take all of them.
    """
    if runtime not in (AUTO, ONNXRUNTIME):
        raise ConfigError(f"runtime '{runtime}' runs one shape; use onnxruntime for variants")

    def numbers(name: str) -> int:
        return sum(map(math.prod, variants[name].values()))

    smallest, *others = sorted(variants, key=numbers)
    model = load(shapes={**shapes, **variants[smallest]}, runtime=ONNXRUNTIME)
    if model.onnx_file is None or model.batch > 1:
        problem = "batch 1" if model.onnx_file else "an ONNX file of dynamic shapes"
        raise ConfigError(f"the variants of '{model.graph.name}' need {problem}")
    further = {
        name: load(shapes={**shapes, **variants[name]}, runtime=ONNXRUNTIME) for name in others
    }
    for name, variant in further.items():
        _require_same_states(model, variant, name)
    return replace(model, variants=further)


def _require_same_states(model: CompiledModel, variant: CompiledModel, name: str) -> None:
    """Raise ConfigError where two variants differ in their states, or in whether these fill up."""
    ours, theirs = (
        {s.input: (s.output, m.graph.tensors[s.input].shape) for s in m.graph.states}
        for m in (model, variant)
    )
    if ours != theirs:
        different = next(key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key))
        problem = f"state '{different}' is different in variant '{name}'; give it the same shape"
        raise ConfigError(problem)
    if (model.lowered.steps is None) != (variant.lowered.steps is None):
        raise ConfigError(
            f"how much room an item of variant '{name}' takes in the states is not known; "
            "leave the variant out"
        )
