"""Shapes that ONNX can infer, and the constants that nodes asking for a shape come to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Shape = tuple[int, ...]

_SHAPE_OPS = ("Shape", "Size")


def asks_for_shape(node: Any) -> bool:
    """Whether a node only reads the shape of its input."""
    return node.op_type in _SHAPE_OPS and node.domain in ("", "ai.onnx")


def shape_value(node: Any, shape: Shape) -> Any:
    """The array that a Shape or Size node makes of a tensor of that shape; None for others."""
    import numpy as np

    if not asks_for_shape(node):
        return None
    if node.op_type == "Size":
        return np.array(int(np.prod(shape)), np.int64)
    bounds = {a.name: a.i for a in node.attribute}
    return np.array(shape[bounds.get("start") : bounds.get("end")], np.int64)


def shape_constant(node: Any, shape: Shape | None) -> Any:
    """The Constant node that a Shape or Size node comes to; None where the shape is not known."""
    from onnx import helper, numpy_helper

    if shape is None:
        return None
    value = numpy_helper.from_array(shape_value(node, shape))
    return helper.make_node("Constant", [], node.output, value=value)


def inferred_shapes(model: Any, known: Mapping[str, Shape]) -> dict[str, Shape]:
    """The static shapes that ONNX infers for a model; ``known`` are some of the fused graph."""
    light = _without_weights(model)
    inferred: dict[str, Shape] = {}
    # Each answered Shape node may allow further inference.
    while (further := _infer(light)).keys() - inferred.keys():
        inferred = further
        for node in light.graph.node:
            if not asks_for_shape(node):
                continue
            tensor = node.input[0]
            constant = shape_constant(node, known.get(tensor) or inferred.get(tensor))
            if constant is not None:
                node.CopyFrom(constant)
    return inferred


def _infer(model: Any) -> dict[str, Shape]:
    import onnx

    try:
        return declared_shapes(onnx.shape_inference.infer_shapes(model, data_prop=True))
    except Exception:  # without inference the missing tensor is reported as a dependency
        return {}


def declared_shapes(model: Any) -> dict[str, Shape]:
    """The static shapes that a model states for its tensors."""
    graph = model.graph
    shapes = {}
    for value in (*graph.value_info, *graph.input, *graph.output):
        dims = value.type.tensor_type.shape.dim
        if value.type.tensor_type.HasField("shape") and all(d.HasField("dim_value") for d in dims):
            shapes[value.name] = tuple(d.dim_value for d in dims)
    return shapes


def _without_weights(model: Any) -> Any:
    """A model with weights as inputs of their shape: with them a protobuf can be too large.

    Scalars and integers stay, because shapes can depend on their values.
    """
    import onnx
    from onnx import helper

    light = onnx.ModelProto()
    light.ir_version = model.ir_version
    light.opset_import.extend(model.opset_import)
    light.graph.name = model.graph.name
    light.graph.node.extend(model.graph.node)
    light.graph.output.extend(model.graph.output)
    light.graph.input.extend(model.graph.input)
    inputs = {i.name for i in model.graph.input}
    for weight in model.graph.initializer:
        if weight.data_type == onnx.TensorProto.INT64 or len(weight.dims) == 0:
            light.graph.initializer.append(weight)
        elif weight.name not in inputs:
            light.graph.input.append(
                helper.make_tensor_value_info(weight.name, weight.data_type, weight.dims)
            )
    return light
