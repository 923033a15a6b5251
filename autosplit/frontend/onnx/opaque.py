"""Opaque ops: source nodes that TVM's importer cannot convert and that only other runtimes compute.

Such a node becomes one call of a function that does not exist, with the shapes and types that
onnxruntime infers for its results. Fusion leaves the call as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autosplit.errors import ModelError
from autosplit.extras import helper, numpy_helper, onnx, relax
from autosplit.frontend.onnx.limits import Limits
from autosplit.frontend.onnx.nodes import constants_of, inner_graphs
from autosplit.frontend.onnx.single_node import constant, dtype_of, open_session, single_model
from autosplit.frontend.onnx.static_shapes import (
    Shape,
    declared_shapes,
    implied_shapes,
    inferred_shapes,
)
from autosplit.frontend.relax.expressions import is_constant
from autosplit.frontend.source import OPAQUE

# Larger weights do not affect shapes, and a protobuf holds no more than 2 GB.
_MAX_ELEMENTS = 1 << 20


def results(
    model: Any, node: Any, values: Mapping[str, Any], unknown: str, builder: Any, limits: Limits
) -> dict[str, Any]:
    """The Relax expressions of the results of ``node``, by name.

    ``values`` are the expressions of the tensors that it reads. A node that reads only constants is
    computed here, within ``limits``. ``unknown`` is the message for a result without a fixed size.

    Raises:
        ValueError: onnxruntime refuses the node, a result is not a tensor of numbers, or a node
            that reads only constants has a loop or exceeds the limits.
        ModelError: A result has no fixed size.
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
            # Only the file, which is not trusted, determines how long this would run.
            raise ValueError("it computes a constant step by step; store its result as a weight")
        limits.check_computed(node, values, [output.shape for output in outputs])
        arrays = session.run(None, {})
        return {o.name: constant(a) for o, a in zip(outputs, arrays, strict=True)}
    shapes = declared_shapes(model) | inferred_shapes(single, {})
    if node.op_type == "Loop":
        shapes |= _loop_shapes(single)
    try:
        types = [_type(output, shapes, unknown) for output in outputs]
    except ModelError:
        # This infers the whole model, which few nodes need.
        shapes = implied_shapes(model) | shapes
        types = [_type(output, shapes, unknown) for output in outputs]
    read, kind = relax.Tuple(list(values.values())), types if len(types) > 1 else types[0]
    variable = builder.emit(relax.call_dps_packed(OPAQUE + node.op_type, read, kind))
    if len(types) == 1:
        return {outputs[0].name: variable}
    items = (relax.TupleGetItem(variable, i) for i in range(len(types)))
    return {o.name: item for o, item in zip(outputs, items, strict=True)}


def _agree(inferred: Sequence[Any], shape: Shape) -> bool:
    """Whether ``shape`` has all sizes that are known in ``inferred``."""
    return len(inferred) == len(shape) and all(
        known == size or not isinstance(known, int)
        for known, size in zip(inferred, shape, strict=True)
    )


def _type(output: Any, shapes: Mapping[str, Shape], unknown: str) -> Any:
    """The Relax type of an output of a session; ``shapes`` are those that ONNX knows."""
    dtype = dtype_of(output)
    if dtype is None:
        raise ValueError(f"its output '{output.name}' is a {output.type}, which cannot cross a cut")
    # onnxruntime gives a tensor of unknown rank, as a Loop makes it, the shape of a scalar.
    inferred = output.shape
    is_known = inferred and all(isinstance(size, int) for size in inferred)
    shape = inferred if is_known else shapes.get(output.name)
    if shape is None or (inferred and not _agree(inferred, shape)):
        raise ModelError(unknown)
    return relax.TensorType(shape, dtype)


def _loop_shapes(model: Any) -> dict[str, Shape]:
    """The known static shapes of the results of a Loop, the only node of ``model``.

    ONNX does not infer them. They are known if one trip leaves the shapes of all carried tensors
    unchanged; a scan output also needs a fixed number of trips.
    """
    (node,) = model.graph.node
    body = next((a.g for a in node.attribute if a.name == "body"), None)
    weights = {weight.name: weight for weight in model.graph.initializer}
    shapes = declared_shapes(model) | {name: tuple(w.dims) for name, w in weights.items()}
    carried = list(node.input[2:])
    if body is None or len(body.input) != len(carried) + 2 or not shapes.keys() >= set(carried):
        return {}
    before = [shapes[name] for name in carried]
    after = _after_trip(model, body, carried)
    if after[: len(carried)] != before:
        return {}
    trips = _trips(node, body, weights)
    scans = after[len(carried) :]
    rows = [(trips, *scan) if trips and scan is not None else None for scan in scans]
    names = zip(node.output, [*before, *rows], strict=False)
    return {name: shape for name, shape in names if name and shape is not None}


def _trips(node: Any, body: Any, weights: Mapping[str, Any]) -> int | None:
    """How often a Loop runs its body; None where data determines that."""
    maximum = weights.get(node.input[0])
    condition = node.input[1]
    if maximum is None:
        return None
    # Without a condition for the Loop, the condition of its body is ignored.
    if condition and not (_is_true(weights.get(condition)) and _stays_true(body)):
        return None
    return max(0, int(numpy_helper.to_array(maximum).item()))


def _stays_true(body: Any) -> bool:
    """Whether the condition that a body returns is true if the condition that it gets is true."""
    makers = {name: node for node in body.node for name in node.output}
    name = body.output[0].name
    while name in makers and makers[name].op_type in ("Cast", "Identity"):
        name = makers.pop(name).input[0]
    constants = constants_of(body.node, body.initializer)
    return name == body.input[1].name or _is_true(constants.get(name))


def _is_true(tensor: Any) -> bool:
    return tensor is not None and bool(numpy_helper.to_array(tensor).all())


def _after_trip(model: Any, body: Any, carried: Sequence[str]) -> list[Shape | None]:
    """The shapes of the outputs of a body, except its condition, after the first trip."""
    trip = type(model)()
    trip.CopyFrom(model)
    graph = trip.graph
    del graph.node[:], graph.output[:]
    for value, name in zip(body.input[2:], carried, strict=True):
        graph.node.append(helper.make_node("Identity", [name], [value.name]))
    graph.node.extend(body.node)
    graph.input.extend(body.input[:2])
    graph.initializer.extend(body.initializer)
    graph.output.extend(onnx.ValueInfoProto(name=output.name) for output in body.output)
    known = inferred_shapes(trip, {})
    return [known.get(output.name) for output in body.output[1:]]
