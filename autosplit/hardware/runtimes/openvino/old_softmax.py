"""Softmax of ONNX before opset 13, as OpenVINO computes it correctly."""

from __future__ import annotations

from typing import Any

_OPS = ("Softmax", "LogSoftmax", "Hardmax")
_AXIS_ALONE = 13  # from this opset on, only the given axis is normalised


def with_flat_softmax(model: Any) -> Any:
    """The model with old Softmax nodes on matrices.

    Before opset 13 all axes from the given one on are normalised together. OpenVINO normalises the
    given one alone, which is the same only on a matrix whose last axis it is.
    """
    opsets = {opset.domain: opset.version for opset in model.opset_import}
    if opsets.get("", _AXIS_ALONE) >= _AXIS_ALONE:
        return model
    nodes = [part for node in model.graph.node for part in _flat(node)]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def _flat(node: Any) -> list[Any]:
    """A node on the matrix of its input, and the nodes that make the matrix and undo it."""
    from onnx import helper

    if node.op_type not in _OPS or node.domain not in ("", "ai.onnx"):
        return [node]
    tensor, output = node.input[0], node.output[0]
    axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
    matrix, shape, result = (f"{output}/{part}" for part in ("matrix", "shape", "result"))
    return [
        helper.make_node("Flatten", [tensor], [matrix], axis=axis),
        helper.make_node(node.op_type, [matrix], [result], axis=1),
        helper.make_node("Shape", [tensor], [shape]),
        helper.make_node("Reshape", [result, shape], [output], name=node.name),
    ]
