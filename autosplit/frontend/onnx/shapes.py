"""The inputs of an ONNX model, and static shapes for them, of one item or of several at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from autosplit.errors import ModelError
from autosplit.extras import helper, numpy_helper
from autosplit.frontend.onnx.nodes import constants_of, tensors_read
from autosplit.frontend.shapes import Shapes, Sizes, bound_symbols, of_one_item, require_static
from autosplit.frontend.source import Signature

_NO_NUMBERS = ("undefined", "string")
# The position of the input that gives the shape of a node's result.
_SHAPE_INPUT = {"Reshape": 1, "Expand": 1, "Resize": 3}


def inputs(model: Any) -> tuple[Signature, ...]:
    """The graph inputs that no initialiser fills, of a model with static shapes."""
    return tuple(
        Signature(value.name, tuple(sizes_of(value) or ()), element_type(value))
        for value in free_inputs(model)
    )


def element_type(value: Any) -> str:
    """The declared element type of a tensor, as numpy spells it, or one in _NO_NUMBERS."""
    try:
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    except KeyError:
        return "undefined"
    return "string" if dtype.kind == "O" else str(dtype)


def sizes_of(value: Any) -> Sizes:
    """The sizes that a tensor is declared with; None where it has no shape."""
    tensor = value.type.tensor_type
    return [_size(dim) for dim in tensor.shape.dim] if tensor.HasField("shape") else None


def bind_shapes(model: Any, shapes: Shapes) -> None:
    """Make every input shape static, the dynamic ones by ``shapes``.

    Raises:
        ConfigError: A shape is given for no input, or does not fit.
        ModelError: An input is no numeric tensor, or stays dynamic.
    """
    free = free_inputs(model)
    declared = {value.name: sizes_of(value) for value in free}
    shapes = of_one_item(declared, shapes)
    symbols = bound_symbols(declared, shapes)
    for value in free:
        _require_numeric_tensor(value)
        sizes: Sizes = shapes.get(value.name, declared[value.name])
        if sizes is not None:
            sizes = [symbols.get(size, size) for size in sizes]
        require_static(value.name, sizes)
        shape = value.type.tensor_type.shape
        shape.SetInParent()  # a scalar has a shape, too
        del shape.dim[:]
        for size in sizes or ():
            shape.dim.add(dim_value=size)


def free_inputs(model: Any) -> list[Any]:
    """The inputs that no initialiser fills, as ONNX has them."""
    filled = {i.name for i in model.graph.initializer}
    return [i for i in model.graph.input if i.name not in filled]


def _size(dim: Any) -> Any:
    # onnxruntime takes a negative size as unknown, too.
    is_number = dim.HasField("dim_value") and dim.dim_value >= 0
    return dim.dim_value if is_number else dim.dim_param or None


def _require_numeric_tensor(value: Any) -> None:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        raise ModelError(
            f"input '{value.name}' is a {kind or 'value without a type'}; only tensors can be split"
        )
    if element_type(value) in _NO_NUMBERS:
        raise ModelError(
            f"input '{value.name}' has no numeric element type; "
            "only numbers and booleans can be split"
        )


def enlarge(model: Any, batch: int) -> None:
    """Let a ModelProto with static inputs take ``batch`` items at once.

    Constant shapes in the graph that are made for one item are multiplied too. Whether the model
    still computes each item as it does alone is left to the comparison of outputs.

    Raises ModelError if its inputs have no first axis in common along which items could lie.
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
    # The shapes that the model states for other tensors hold for one item only.
    del model.graph.value_info[:]
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    _enlarge_shapes(model.graph, next(iter(sizes.values()), 0), batch)


def _enlarge_shapes(graph: Any, item: int, batch: int) -> None:
    """Multiply the first size of constant shapes of results that depend on the inputs."""
    constants = constants_of(graph.node, graph.initializer)
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
