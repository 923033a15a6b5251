"""Opaque ops: source nodes that TVM's importer cannot convert and that only other runtimes compute.

Such a node becomes one call of a function that does not exist, with the shapes and types that
onnxruntime infers for its results. Fusion leaves the call as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autosplit.extras import relax
from autosplit.frontend.onnx.limits import Limits
from autosplit.frontend.onnx.loop_shapes import loop_shapes
from autosplit.frontend.onnx.nodes import inner_graphs
from autosplit.frontend.onnx.single_node import constant, dtype_of, open_session, single_model
from autosplit.frontend.onnx.static_shapes import (
    Shape,
    declared_shapes,
    implied_shapes,
    inferred_shapes,
)
from autosplit.frontend.relax.expressions import is_constant
from autosplit.frontend.source import OPAQUE

# Larger weights have no part in shapes, and a protobuf holds no more than 2 GB.
_MAX_ELEMENTS = 1 << 20


class UnknownSizeError(Exception):
    """A result has a size that is known only when the model runs."""


def results(
    model: Any, node: Any, values: Mapping[str, Any], builder: Any, limits: Limits
) -> dict[str, Any]:
    """The Relax expressions of the results of ``node``, by name.

    ``values`` are the expressions of the tensors that it reads. What depends on constants alone is
    computed here, within ``limits``.

    Raises:
        ValueError: onnxruntime refuses the node, a result is no tensor of numbers, or what
            depends on constants alone is a loop or exceeds the limits.
        UnknownSizeError: A result has no fixed size.
        MachineError: The package onnxruntime is missing.
    """
    inputs, weights = {}, {}
    for name, value in values.items():
        if is_constant(value) and np.prod(value.value.shape, dtype=float) <= _MAX_ELEMENTS:
            weights[name] = value.value.numpy()
        else:
            inputs[name] = value
    single = single_model(model, node, inputs, weights)
    session = open_session(single)
    outputs = session.get_outputs()
    if not inputs:
        if any(True for _ in inner_graphs(node)):
            # Its file alone says how long it runs.
            raise ValueError("it computes a constant step by step; store its result as a weight")
        limits.check_computed(node, values, [output.shape for output in outputs])
        arrays = session.run(None, {})
        return {o.name: constant(a) for o, a in zip(outputs, arrays, strict=True)}
    shapes = declared_shapes(model) | inferred_shapes(single, {})
    if node.op_type == "Loop":
        shapes |= loop_shapes(single)
    try:
        types = [_type(output, shapes) for output in outputs]
    except UnknownSizeError:
        # This infers the whole model, which few nodes need.
        shapes = implied_shapes(model) | shapes
        types = [_type(output, shapes) for output in outputs]
    call = relax.call_dps_packed(
        OPAQUE + node.op_type,
        relax.Tuple(list(values.values())),
        types if len(types) > 1 else types[0],
    )
    variable = builder.emit(call)
    if len(types) == 1:
        return {outputs[0].name: variable}
    items = (relax.TupleGetItem(variable, i) for i in range(len(types)))
    return {o.name: item for o, item in zip(outputs, items, strict=True)}


def _agree(inferred: Sequence[Any], shape: Shape) -> bool:
    """Whether a shape has the sizes that are known of it."""
    return len(inferred) == len(shape) and all(
        known == size or not isinstance(known, int)
        for known, size in zip(inferred, shape, strict=True)
    )


def _type(output: Any, shapes: Mapping[str, Shape]) -> Any:
    """The Relax type of an output of a session; ``shapes`` are those that ONNX knows."""
    dtype = dtype_of(output)
    if dtype is None:
        raise ValueError(f"its output '{output.name}' is a {output.type}, which cannot cross a cut")
    # onnxruntime gives a tensor of unknown rank, as a Loop makes it, the shape of a scalar.
    inferred = output.shape
    is_known = inferred and all(isinstance(size, int) for size in inferred)
    shape = inferred if is_known else shapes.get(output.name)
    if shape is None or (inferred and not _agree(inferred, shape)):
        raise UnknownSizeError
    return relax.TensorType(shape, dtype)
