"""The inputs of an ONNX model, and static shapes for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autosplit.errors import ConfigError, ModelError
from autosplit.frontend.source import Signature

Shapes = Mapping[str, tuple[int, ...]]


def inputs(model: Any) -> tuple[Signature, ...]:
    """The graph inputs that no initialiser fills, of a model with static shapes."""
    return tuple(
        Signature(i.name, tuple(d.dim_value for d in _dims(i)), _dtype(i))
        for i in _free_inputs(model)
    )


def bind_shapes(model: Any, shapes: Shapes) -> None:
    """Make every input shape static, the dynamic ones by ``shapes``.

    Raises:
        ConfigError: A shape is given for no input, or does not fit.
        ModelError: An input is no numeric tensor, or stays dynamic.
    """
    free = _free_inputs(model)
    for name in shapes:
        if name not in [i.name for i in free]:
            names = ", ".join(repr(i.name) for i in free) or "none"
            raise ConfigError(f"--shape names '{name}', but the model's inputs are {names}")
    symbols: dict[str, int] = {}
    for value in free:
        _require_numeric_tensor(value)
        if value.name in shapes:
            _apply(value, shapes[value.name], symbols)
    for value in free:
        for dim in _dims(value):
            if dim.dim_param in symbols:
                dim.dim_value = symbols[dim.dim_param]
        _require_static(value)


def _free_inputs(model: Any) -> list[Any]:
    filled = {i.name for i in model.graph.initializer}
    return [i for i in model.graph.input if i.name not in filled]


def _dims(value: Any) -> Any:
    return value.type.tensor_type.shape.dim


def _dtype(value: Any) -> str:
    from onnx import helper

    return str(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))


def _require_numeric_tensor(value: Any) -> None:
    from onnx import TensorProto

    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        raise ModelError(
            f"input '{value.name}' is a {kind or 'value without a type'}; only tensors can be split"
        )
    numeric = set(TensorProto.DataType.values()) - {TensorProto.UNDEFINED, TensorProto.STRING}
    if value.type.tensor_type.elem_type not in numeric:
        raise ModelError(
            f"input '{value.name}' has no numeric element type; "
            "only numbers and booleans can be split"
        )


def _apply(value: Any, shape: tuple[int, ...], symbols: dict[str, int]) -> None:
    """Give an input its shape and bind the symbols in it."""
    option = f"--shape {value.name}={'x'.join(map(str, shape))}"
    if not value.type.tensor_type.HasField("shape"):
        value.type.tensor_type.shape.SetInParent()  # a scalar has a shape, too
        for _ in shape:
            _dims(value).add()
    dims = _dims(value)
    if len(shape) != len(dims):
        raise ConfigError(
            f"{option} has rank {len(shape)}, but the input has rank {len(dims)}: {_text(value)}"
        )
    for axis, (dim, size) in enumerate(zip(dims, shape, strict=True)):
        if size < 1:
            raise ConfigError(f"{option} has size {size} at axis {axis}; sizes start at 1")
        fixed = dim.dim_value if dim.dim_value > 0 else symbols.get(dim.dim_param)
        if fixed is not None and fixed != size:
            raise ConfigError(f"{option} differs at axis {axis}, which the model fixes to {fixed}")
        if dim.dim_param:
            symbols[dim.dim_param] = size
        dim.dim_value = size


def _require_static(value: Any) -> None:
    has_shape = value.type.tensor_type.HasField("shape")
    if has_shape and all(d.dim_value > 0 for d in _dims(value)):
        return
    example = "x".join(str(max(d.dim_value, 1)) for d in _dims(value)) or "1x3x224x224"
    raise ModelError(
        f"input '{value.name}' has a dynamic shape {_text(value)}; "
        f"give it, e.g. --shape {value.name}={example}"
    )


def _text(value: Any) -> str:
    """The shape of an input as a message shows it: numbers, symbols, ? for what is unknown."""
    if not value.type.tensor_type.HasField("shape"):
        return "(of unknown rank)"
    sizes = [str(d.dim_value) if d.dim_value > 0 else d.dim_param or "?" for d in _dims(value)]
    return f"({', '.join(sizes)})"
