"""Several items at once: an ONNX model whose inputs have so many times more along the first axis.

Sizes that the graph itself fixes to those of one item grow along. Whether the model still computes
each item as alone is for the comparison of outputs to say.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autosplit.errors import ModelError
from autosplit.extras import numpy_helper
from autosplit.frontend.onnx.nodes import tensors_read
from autosplit.frontend.onnx.shapes import free_inputs

# The input of a node that gives the shape of its result.
_SHAPE_INPUT = {"Reshape": 1, "Expand": 1, "Resize": 3}


def enlarge(model: Any, batch: int) -> None:
    """Let a ModelProto with static inputs take ``batch`` items at once.

    Raises ModelError where its inputs have no axis in common along which items could lie.
    """
    sizes: dict[str, int] = {}  # of the first axis, by input
    for value in free_inputs(model):
        name, shape = value.name, value.type.tensor_type.shape.dim
        if not shape:
            raise ModelError(f"input '{name}' is a scalar, which has no axis for a batch; use 1")
        sizes[name] = shape[0].dim_value
        first, item = next(iter(sizes.items()))
        if sizes[name] != item:
            raise ModelError(
                f"inputs '{first}' and '{name}' have {item} and {sizes[name]} along their first "
                "axis, so they share no axis for a batch; use batch 1"
            )
        shape[0].dim_value *= batch
    # What the model states of other tensors holds for one item only.
    del model.graph.value_info[:]
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    _enlarge_shapes(model.graph, next(iter(sizes.values()), 0), batch)


def _enlarge_shapes(graph: Any, item: int, batch: int) -> None:
    """Multiply the first of the constant shapes that nodes give to what depends on the inputs."""
    constants = {tensor.name: tensor for tensor in graph.initializer}
    constants |= {
        node.output[0]: node.attribute[0].t
        for node in graph.node
        if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t")
    }
    varying = {value.name for value in graph.input} - constants.keys()
    for node in graph.node:
        if varying.isdisjoint(tensors_read(node)):
            continue
        varying.update(node.output)
        place = _SHAPE_INPUT.get(node.op_type, len(node.input))
        shape = constants.get(node.input[place]) if place < len(node.input) else None
        if shape is None or node.input[0] not in varying:
            continue
        sizes = np.array(numpy_helper.to_array(shape))
        if not sizes.size or sizes[0] != item:
            continue
        sizes[0] *= batch
        # Other nodes may read the same constant.
        name = f"{node.input[place]} of {batch} items"
        if name not in constants:
            constants[name] = numpy_helper.from_array(sizes, name)
            graph.initializer.append(constants[name])
        node.input[place] = name
