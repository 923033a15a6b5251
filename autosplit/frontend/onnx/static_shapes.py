"""Shapes that ONNX can infer, and the constant results of nodes that ask for a shape."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from autosplit.extras import helper, numpy_helper, onnx
from autosplit.frontend.onnx.nodes import inner_graphs
from autosplit.frontend.onnx.shapes import sizes_of

Shape = tuple[int, ...]
Sizes = tuple[Any, ...]

_MOST_JOINED = 1 << 20  # numbers that all Concat nodes join
_SHAPE_OPS = ("Shape", "Size")
# The result has the shape of the first input.
_ELEMENTWISE = ("Abs", "Cast", "CastLike", "Exp", "Log", "Neg", "Relu", "Sigmoid", "Sqrt", "Tanh")


def asks_for_shape(node: Any) -> bool:
    """Whether a node only reads the shape of its input."""
    is_complete = bool(node.input) and bool(node.output)
    return is_complete and node.op_type in _SHAPE_OPS and node.domain in ("", "ai.onnx")


def shape_value(node: Any, shape: Shape) -> Any:
    """The array that a Shape or Size node makes of a tensor of that shape."""
    if node.op_type == "Size":
        return np.array(int(np.prod(shape)), np.int64)
    bounds = {a.name: a.i for a in node.attribute}
    return np.array(shape[bounds.get("start") : bounds.get("end")], np.int64)


def shape_constant(node: Any, shape: Shape | None) -> Any:
    """The Constant that a Shape or Size node is replaced by; None where the shape is not known."""
    if shape is None:
        return None
    value = numpy_helper.from_array(shape_value(node, shape))
    return helper.make_node("Constant", [], node.output, value=value)


def inferred_shapes(model: Any, known: Mapping[str, Shape]) -> dict[str, Shape]:
    """The static shapes that ONNX infers for a model; ``known`` adds shapes of the fused graph."""
    light = _without_weights(model)
    inferred: dict[str, Shape] = {}
    # Each Shape node that becomes a constant may allow further inference.
    while (further := declared_shapes(_inferred(light))).keys() - inferred.keys():
        inferred = further
        for node in light.graph.node:
            if not asks_for_shape(node):
                continue
            tensor = node.input[0]
            constant = shape_constant(node, known.get(tensor) or inferred.get(tensor))
            if constant is not None:
                node.CopyFrom(constant)
    return inferred


def implied_shapes(model: Any) -> dict[str, Shape]:
    """Infer static shapes backwards from the shapes that a model declares.

    ONNX's inference gives an unknown size a name where it arises, and repeats the name wherever the
    same size occurs, even at an output of declared shape.
    """
    light = _without_weights(model)
    for output in light.graph.output:
        output.type.tensor_type.ClearField("shape")  # or it would hide the names
    static, inferred = declared_shapes(model), _sizes(_inferred(light))
    sizes: dict[Any, int] = {}
    for tensor in static.keys() & inferred.keys():
        # An unknown size without a name tells nothing about others.
        pairs = zip(inferred[tensor], static[tensor], strict=False)
        if any(name is not None and sizes.setdefault(name, size) != size for name, size in pairs):
            return {}  # the declared shapes contradict each other
    known = {tensor: tuple(sizes.get(n, n) for n in names) for tensor, names in inferred.items()}
    static |= _static(known)
    for node in reversed(light.graph.node):
        shape = static.get(node.output[0]) if node.op_type in _ELEMENTWISE else None
        if shape is not None and static.setdefault(node.input[0], shape) != shape:
            return {}
    return static


def _inferred(model: Any) -> Any:
    """The model with the shapes that ONNX infers."""
    try:
        return onnx.shape_inference.infer_shapes(model, data_prop=_joins_little(model.graph))
    except Exception:  # a failed inference leaves the shapes unknown
        return onnx.ModelProto()


def _joins_little(graph: Any) -> bool:
    """Whether Concat nodes join few values: ONNX keeps each one where it propagates data."""
    sizes = {weight.name: math.prod(weight.dims) for weight in graph.initializer}
    total = 0
    for node in graph.node:
        read = [sizes.get(name, 1) for name in node.input]
        size = sum(read) if node.op_type == "Concat" else max(read, default=1)
        total += size if node.op_type == "Concat" else 0
        sizes.update(dict.fromkeys(node.output, size))
        if total > _MOST_JOINED or not all(map(_joins_little, inner_graphs(node))):
            return False
    return True


def declared_shapes(model: Any) -> dict[str, Shape]:
    """The static shapes that a model states for its tensors."""
    return _static(_sizes(model))


def _static(shapes: Mapping[str, Sizes]) -> dict[str, Shape]:
    return {name: s for name, s in shapes.items() if all(isinstance(size, int) for size in s)}


def _sizes(model: Any) -> dict[str, Sizes]:
    """The shapes that a model states: a size is a number, a name, or None where it is unknown."""
    graph = model.graph
    shapes = ((v.name, sizes_of(v)) for v in (*graph.value_info, *graph.input, *graph.output))
    return {name: tuple(sizes) for name, sizes in shapes if sizes is not None}


def _without_weights(model: Any) -> Any:
    """A model with weights as inputs of the same shape: a protobuf with weights can be too large.

    Scalars and integers stay, because shapes can depend on their values.
    """
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
