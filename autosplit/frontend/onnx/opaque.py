"""Opaque ops: source nodes that TVM's importer cannot convert and that only other runtimes compute.

Such a node becomes one call of a function that does not exist, with the shapes and types that
onnxruntime infers for its results. Fusion leaves the call as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autosplit.errors import line_of
from autosplit.extras import helper, numpy_helper, onnx, relax, require
from autosplit.frontend.onnx import shape_arithmetic
from autosplit.frontend.onnx.loop_shapes import loop_shapes
from autosplit.frontend.onnx.nodes import inner_graphs
from autosplit.frontend.onnx.static_shapes import (
    Shape,
    declared_shapes,
    implied_shapes,
    inferred_shapes,
)
from autosplit.frontend.relax.expressions import fixed_sizes, is_constant
from autosplit.frontend.source import OPAQUE

if TYPE_CHECKING:
    from autosplit.frontend.onnx.limits import Limits

# Larger weights have no part in shapes, and a protobuf holds no more than 2 GB.
_MAX_ELEMENTS = 1 << 20
_NUMBER = re.compile(r"tensor\((float|double|float16|bfloat16|bool|u?int(?:8|16|32|64))\)")
_NAMES = {"float": "float32", "double": "float64"}  # of types that ONNX calls otherwise


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
            weights[name] = value
        else:
            inputs[name] = value
    single = _single(model, node, inputs, weights)
    session = _session(single)
    outputs = session.get_outputs()
    if not inputs:
        if any(True for _ in inner_graphs(node)):
            # Its file alone says how long it runs.
            raise ValueError("it computes a constant step by step; store its result as a weight")
        limits.check_computed(node, values, [output.shape for output in outputs])
        arrays = session.run(None, {})
        return {o.name: shape_arithmetic.constant(a) for o, a in zip(outputs, arrays, strict=True)}
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


def _single(model: Any, node: Any, inputs: Mapping[str, Any], weights: Mapping[str, Any]) -> Any:
    """A model of one node; its outputs are declared without a type."""
    graph = helper.make_graph(
        [node],
        "node",
        [declared(name, value) for name, value in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in node.output if name],
        [numpy_helper.from_array(w.value.numpy(), name) for name, w in weights.items()],
    )
    return helper.make_model(
        graph, opset_imports=model.opset_import, ir_version=max(model.ir_version, 4)
    )


def declared(name: str, value: Any) -> Any:
    """A tensor as ONNX declares it; raises ValueError for one without a fixed size."""
    sizes = fixed_sizes(value.ty)
    if sizes is None:
        raise ValueError(f"it reads '{name}', which is no tensor of a fixed size")
    dtype = str(value.ty.dtype)
    name_of = {theirs: ours for ours, theirs in _NAMES.items()}
    element = onnx.TensorProto.DataType.Value(name_of.get(dtype, dtype).upper())
    return helper.make_tensor_value_info(name, element, sizes)


def _session(model: Any) -> Any:
    onnxruntime = require("onnxruntime", "onnx")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4  # an error is raised as an exception, so it need not be logged
    try:
        return onnxruntime.InferenceSession(
            model.SerializeToString(),
            options,
            providers=["CPUExecutionProvider"],
            enable_fallback=False,
        )
    except Exception as error:
        reason = re.sub(r"\[ONNXRuntimeError\] : \d+ : \w+ : ", "", line_of(error))
        raise ValueError(f"onnxruntime refuses it: {reason}") from error


def _agree(inferred: Sequence[Any], shape: Shape) -> bool:
    """Whether a shape has the sizes that are known of it."""
    return len(inferred) == len(shape) and all(
        known == size or not isinstance(known, int)
        for known, size in zip(inferred, shape, strict=True)
    )


def _type(output: Any, shapes: Mapping[str, Shape]) -> Any:
    """The Relax type of an output of a session; ``shapes`` are those that ONNX knows."""
    match = _NUMBER.fullmatch(output.type)
    if match is None:
        raise ValueError(f"its output '{output.name}' is a {output.type}, which cannot cross a cut")
    # onnxruntime gives a tensor of unknown rank, as a Loop makes it, the shape of a scalar.
    inferred = output.shape
    is_known = inferred and all(isinstance(size, int) for size in inferred)
    shape = inferred if is_known else shapes.get(output.name)
    if shape is None or (inferred and not _agree(inferred, shape)):
        raise UnknownSizeError
    return relax.TensorType(shape, _NAMES.get(match[1], match[1]))
