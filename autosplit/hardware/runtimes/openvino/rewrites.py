"""Rewriting of models that OpenVINO would compute wrongly."""

from __future__ import annotations

from typing import Any

from autosplit.extras import helper, onnx

_OPS = ("Softmax", "LogSoftmax", "Hardmax")
_AXIS_ALONE = 13  # from this opset on, only the given axis is normalised


def with_flat_softmax(model: Any) -> Any:
    """Let the Softmax nodes of a model with an opset before 13 work on matrices.

    Before opset 13 all axes from the given one on are normalised together. OpenVINO normalises the
    given axis alone, which is the same only where it is the last one, as in a flattened matrix.
    """
    opsets = {opset.domain: opset.version for opset in model.opset_import}
    if opsets.get("", _AXIS_ALONE) >= _AXIS_ALONE:
        return model
    nodes = [part for node in model.graph.node for part in _flat(node)]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def _flat(node: Any) -> list[Any]:
    """The nodes that flatten the input to a matrix, apply ``node`` and restore the shape."""
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


def with_relayed_inputs(model: Any) -> Any:
    """Insert a node between each float32 input of a model and the nodes that read it.

    OpenVINO 2026.4 fuses attention into one kernel. In bfloat16 that kernel misreads a float32 mask
    that is an input of the model, and gives wrong numbers or NaN. The result of a node, however, is
    rounded to bfloat16 first. The new node is Max(x, x) = x, which OpenVINO does not remove.
    """
    names = {
        tensor.name: f"{tensor.name}/relayed"
        for tensor in model.graph.input
        if tensor.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    }
    nodes = list(model.graph.node)
    for node in nodes:
        node.input[:] = [names.get(name, name) for name in node.input]
    relays = [helper.make_node("Max", [name, name], [to]) for name, to in names.items()]
    del model.graph.node[:]
    model.graph.node.extend(relays + nodes)
    return model
