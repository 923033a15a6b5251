"""The shapes that a Loop makes; ONNX's own inference does not look into its body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autosplit.extras import helper, numpy_helper, onnx
from autosplit.frontend.onnx.static_shapes import Shape, declared_shapes, inferred_shapes


def loop_shapes(model: Any) -> dict[str, Shape]:
    """The static shapes of the results of a Loop, the only node of ``model``, as far as known.

    They are known where one trip leaves the shapes of all carried tensors as they are: that of a
    scan output also needs a fixed number of trips.
    """
    (node,) = model.graph.node
    body = next((a.g for a in node.attribute if a.name == "body"), None)
    weights = {weight.name: weight for weight in model.graph.initializer}
    shapes = declared_shapes(model) | {name: tuple(w.dims) for name, w in weights.items()}
    carried = list(node.input[2:])
    if body is None or len(body.input) != len(carried) + 2 or not shapes.keys() >= set(carried):
        return {}
    before = [shapes[name] for name in carried]
    results = _after_trip(model, body, carried, shapes)
    if results[: len(carried)] != before:
        return {}
    trips = _trips(node, body, weights)
    scans = results[len(carried) :]
    rows = [(trips, *scan) if trips and scan is not None else None for scan in scans]
    names = zip(node.output, [*before, *rows], strict=False)
    return {name: shape for name, shape in names if name and shape is not None}


def _trips(node: Any, body: Any, weights: Mapping[str, Any]) -> int | None:
    """How often a Loop runs its body, None where data decides that."""
    maximum = weights.get(node.input[0])
    condition = node.input[1]
    if maximum is None:
        return None
    # Without a condition that of the body is ignored.
    if condition and not (_is_true(weights.get(condition)) and _stays_true(body)):
        return None
    return max(0, int(numpy_helper.to_array(maximum).item()))


def _stays_true(body: Any) -> bool:
    """Whether the condition that a body makes is true where the one it gets is."""
    makers = {name: node for node in body.node for name in node.output}
    weights = {weight.name: weight for weight in body.initializer}
    name = body.output[0].name
    while name in makers and makers[name].op_type in ("Cast", "Identity"):
        name = makers.pop(name).input[0]
    if name in makers and makers[name].op_type == "Constant":
        return any(_is_true(a.t) for a in makers[name].attribute if a.HasField("t"))
    return name == body.input[1].name or _is_true(weights.get(name))


def _is_true(tensor: Any) -> bool:
    return tensor is not None and bool(numpy_helper.to_array(tensor).all())


def _after_trip(
    model: Any, body: Any, carried: list[str], shapes: Mapping[str, Shape]
) -> list[Shape | None]:
    """The shapes of what a body makes, but for its condition, in the first trip."""
    inputs = [*body.input[:2]]
    elements = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    elements |= {weight.name: weight.data_type for weight in model.graph.initializer}
    for value, name in zip(body.input[2:], carried, strict=True):
        inputs.append(helper.make_tensor_value_info(value.name, elements[name], shapes[name]))
    names = {value.name for value in (*inputs, *body.initializer)}
    graph = helper.make_graph(
        body.node,
        "body",
        [*inputs, *(value for value in model.graph.input if value.name not in names)],
        [onnx.ValueInfoProto(name=output.name) for output in body.output],
        [*body.initializer, *(w for w in model.graph.initializer if w.name not in names)],
    )
    trip = helper.make_model(
        graph, opset_imports=model.opset_import, ir_version=max(model.ir_version, 4)
    )
    known = inferred_shapes(trip, {})
    return [known.get(output.name) for output in body.output[1:]]
