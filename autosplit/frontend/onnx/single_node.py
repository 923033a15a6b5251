"""Single nodes: infers the shapes of their results, and computes small results by onnxruntime.

A shape that is computed in the graph depends only on constants, and TVM needs it as a constant.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from autosplit.errors import line_of
from autosplit.extras import helper, numpy_helper, onnx, relax, require
from autosplit.frontend.onnx.limits import work
from autosplit.frontend.onnx.nodes import inner_graphs
from autosplit.frontend.onnx.static_shapes import Shape, asks_for_shape, shape_value
from autosplit.frontend.relax.expressions import fixed_sizes

Array = np.ndarray[Any, np.dtype[Any]]

SMALL = 1024  # elements; a larger tensor is not a shape, and is folded later
_LITTLE_WORK = 1 << 20
_NUMBER = re.compile(r"tensor\((float|double|float16|bfloat16|bool|u?int(?:8|16|32|64))\)")
_NAMES = {"float": "float32", "double": "float64"}  # of types that ONNX calls otherwise
# Dropout may be random; quantised weights stay small, for backends that compute with them.
_NOT_COMPUTED = frozenset({"Dropout", "QuantizeLinear", "DequantizeLinear"})


def constant(array: Any) -> Any:
    """A Relax constant of the array's own dtype."""
    array = np.asarray(array)
    return relax.const(array, str(array.dtype))


def declared(name: str, value: Any) -> Any:
    """A Relax expression as ONNX declares it; raises ValueError for one without a fixed size."""
    sizes = fixed_sizes(value.ty)
    if sizes is None:
        raise ValueError(f"it reads '{name}', which is no tensor of a fixed size")
    dtype = str(value.ty.dtype)
    name_of = {theirs: ours for ours, theirs in _NAMES.items()}
    element = onnx.TensorProto.DataType.Value(name_of.get(dtype, dtype).upper())
    return helper.make_tensor_value_info(name, element, sizes)


def dtype_of(output: Any) -> str | None:
    """The dtype of an output of a session as numpy spells it; None where it holds no numbers."""
    match = _NUMBER.fullmatch(output.type)
    return match and _NAMES.get(match[1], match[1])


def result_shapes(
    model: Any, node: Any, values: Mapping[str, Any], arrays: Mapping[str, Array]
) -> list[Shape] | None:
    """The shapes that ONNX infers for the results of a node; None if it does not know all.

    ``values`` are the expressions that it reads, ``arrays`` the small constants that it reads.
    """
    opset = next((o.version for o in model.opset_import if not o.domain), 1)
    tensors = {name: numpy_helper.from_array(array, name) for name, array in arrays.items()}
    try:
        types = {name: declared(name, value).type for name, value in values.items()}
        for name, tensor in tensors.items():
            types[name] = helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
        results = onnx.shape_inference.infer_node_outputs(
            # TVM's importer takes ops of other domains for the standard ops.
            onnx.defs.get_schema(node.op_type, opset, ""),
            node,
            types,
            tensors,
            opset_imports=list(model.opset_import),
            ir_version=model.ir_version,
        )
    except Exception:  # an op that ONNX does not know, a sequence, a wrong attribute
        return None
    shapes = [result.tensor_type.shape.dim for result in results.values()]
    if not all(size.HasField("dim_value") for sizes in shapes for size in sizes):
        return None
    return [tuple(size.dim_value for size in sizes) for sizes in shapes]


def known_results(
    model: Any, node: Any, arrays: Mapping[str, Array], shape: Shape | None
) -> dict[str, Array]:
    """The results of a node that asks for the ``shape`` of its input, or reads only ``arrays``.

    Empty where they are not known, or not small.
    """
    if shape is not None and asks_for_shape(node):
        return {node.output[0]: shape_value(node, shape)}
    arrays = {name: arrays[name] for name in node.input if name in arrays}
    if not arrays or len(arrays) < len({*node.input} - {""}):
        return {}
    if node.op_type in _NOT_COMPUTED or node.domain not in ("", "ai.onnx"):
        return {}
    if any(True for _ in inner_graphs(node)):
        return {}
    if sum(array.size for array in arrays.values()) > SMALL:
        return {}
    shapes = result_shapes(model, node, {}, arrays)
    elements = sum(map(math.prod, shapes or ()))
    read = [arrays[name].shape if name else () for name in node.input]
    if shapes is None or elements > SMALL or work(node, read, elements) > _LITTLE_WORK:
        return {}
    try:
        session = open_session(single_model(model, node, {}, arrays))
        results = [np.asarray(result) for result in session.run(None, {})]
    except Exception:  # what it cannot compute is left to the importer, which says why
        return {}
    outputs = session.get_outputs()
    if any(dtype_of(o) != str(a.dtype) for o, a in zip(outputs, results, strict=True)):
        return {}
    return {output.name: array for output, array in zip(outputs, results, strict=True)}


def single_model(
    model: Any, node: Any, inputs: Mapping[str, Any], weights: Mapping[str, Array]
) -> Any:
    """A model of one node; its outputs are declared without a type."""
    graph = helper.make_graph(
        [node],
        "node",
        [declared(name, value) for name, value in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in node.output if name],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(
        graph, opset_imports=model.opset_import, ir_version=max(model.ir_version, 4)
    )


def open_session(model: Any) -> Any:
    """A session of onnxruntime. Raises ValueError where it refuses the model."""
    onnxruntime = require("onnxruntime", "onnx")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4  # an error is raised as an exception, so it need not be logged
    try:
        content, providers = model.SerializeToString(), ["CPUExecutionProvider"]
        return onnxruntime.InferenceSession(content, options, providers, enable_fallback=False)
    except Exception as error:
        reason = re.sub(r"\[ONNXRuntimeError\] : \d+ : \w+ : ", "", line_of(error))
        raise ValueError(f"onnxruntime refuses it: {reason}") from error
