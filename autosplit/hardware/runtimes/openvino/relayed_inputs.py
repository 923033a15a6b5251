"""Inputs of attention, as OpenVINO rounds them to bfloat16 correctly."""

from __future__ import annotations

from typing import Any


def with_relayed_inputs(model: Any) -> Any:
    """The model with a node between each input of single precision and those that read it.

    OpenVINO 2026.4 fuses attention into one kernel. In bfloat16 that kernel misreads a mask of
    single precision that is an input of the model, and gives wrong numbers or NaN. The result of a
    node is rounded before. The larger of an input and itself is the input, and OpenVINO keeps it.
    """
    from onnx import TensorProto, helper

    names = {
        tensor.name: f"{tensor.name}/relayed"
        for tensor in model.graph.input
        if tensor.type.tensor_type.elem_type == TensorProto.FLOAT
    }
    nodes = list(model.graph.node)
    for node in nodes:
        node.input[:] = [names.get(name, name) for name in node.input]
    relays = [helper.make_node("Max", [name, name], [to]) for name, to in names.items()]
    del model.graph.node[:]
    model.graph.node.extend(relays + nodes)
    return model
