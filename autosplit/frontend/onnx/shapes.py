"""The inputs of an ONNX model, and static shapes for them."""

from __future__ import annotations

from typing import Any

from autosplit.errors import ModelError
from autosplit.extras import helper
from autosplit.frontend.shapes import Shapes, Sizes, bound_symbols, of_one_item, require_static
from autosplit.frontend.source import Signature

_NO_NUMBERS = ("undefined", "string")


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
    # onnxruntime takes a negative size for an unknown one, too.
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
