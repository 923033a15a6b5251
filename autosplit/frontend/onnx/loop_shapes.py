"""The shapes that a Loop makes, trip by trip; ONNX's own inference does not look into its body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autosplit.extras import helper, numpy_helper, onnx
from autosplit.frontend.onnx.static_shapes import Shape, inferred_shapes

_MOST_TRIPS = 64  # that are followed while shapes change
_Shapes = list[Shape | None]


def loop_shapes(model: Any) -> dict[str, Shape]:
    """The static shapes of the results of a Loop, the only node of ``model``, as far as known.

    A carried tensor whose shape no trip changes has it after any number of trips. Where the number
    of trips is fixed the scan outputs have a size too, and a carried shape may change.
    """
    (node,) = model.graph.node
    body = next((a.g for a in node.attribute if a.name == "body"), None)
    weights = {w.name: w for w in model.graph.initializer}
    carried = list(node.input[2:])
    if body is None or len(body.input) != len(carried) + 2 or not len(body.output) > len(carried):
        return {}
    types = {value.name: value.type.tensor_type for value in model.graph.input}
    types |= {
        name: helper.make_tensor_type_proto(w.data_type, w.dims).tensor_type
        for name, w in weights.items()
    }
    if not types.keys() >= set(carried):
        return {}
    trips = _trips(node, body, weights)
    elements = [types[name].elem_type for name in carried]
    shapes: _Shapes = [tuple(d.dim_value for d in types[name].shape.dim) for name in carried]
    scans: _Shapes = []
    for trip in range(_MOST_TRIPS if trips is None else min(trips, _MOST_TRIPS)):
        results = _after_trip(model, body, elements, shapes)
        following, new_scans = results[: len(carried)], results[len(carried) :]
        # A scan output is stacked, so that each trip makes the same shape.
        scans = _common(scans, new_scans) if trip else new_scans
        if following == shapes:
            break
        if trips is None:  # it may end before any trip
            following = _common(shapes, following)
        shapes = following
    else:
        if trips is None or trips > _MOST_TRIPS:
            return {}
    rows = [(trips, *scan) if trips and scan is not None else None for scan in scans]
    names = zip(node.output, [*shapes, *rows], strict=False)
    return {name: shape for name, shape in names if name and shape is not None}


def _trips(node: Any, body: Any, weights: Mapping[str, Any]) -> int | None:
    """How often a Loop runs its body, None where data decides that."""
    maximum = weights.get(node.input[0]) if node.input else None
    condition = node.input[1] if len(node.input) > 1 else ""
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
    model: Any, body: Any, elements: Sequence[int], shapes: Sequence[Shape | None]
) -> _Shapes:
    """The shapes of what a body makes, but for its condition, of carried tensors of ``shapes``."""
    inputs = [*body.input[:2]]
    for value, element, shape in zip(body.input[2:], elements, shapes, strict=True):
        inputs.append(helper.make_tensor_value_info(value.name, element, shape))
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


def _common(shapes: _Shapes, others: _Shapes) -> _Shapes:
    """The shapes that are alike in both."""
    return [a if a == b else None for a, b in zip(shapes, others, strict=True)]
