"""A small external backend, registered from Python: it runs regions in numpy, layer by layer, and
remembers what it got.

TVM calls ``relax.ext.reference`` with the regions of a stage; each becomes a Python function under
the region's name.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
NAME = "reference"


class Reference:
    """The code generator: ``regions`` are the functions it was given, by their symbols."""

    def __init__(self) -> None:
        self.regions: dict[str, Any] = {}

    def generate(self, functions: Any, options: Any, names: Any) -> list[Any]:
        import tvm

        for function in functions:
            symbol = str(function.attrs["global_symbol"])
            self.regions[symbol] = function
            tvm.register_global_func(symbol, partial(run, function), override=True)
        return []

    def layers(self) -> list[list[str]]:
        """The names of the layers that each region calls; calls of equal ones share a function."""
        called = []
        for region in self.regions.values():
            bound = {b.var: b.value for block in region.body.blocks for b in block.bindings}
            layers = [bound[v.op] for v in bound.values() if getattr(v, "op", None) in bound]
            called.append([str(layer.attrs["Composite"]) for layer in layers])
        return called


def run(function: Any, *tensors: Any) -> None:
    """Compute a region of its inputs, which come first, into its outputs."""
    count = len(function.params)
    results = evaluate(function, [tensor.numpy() for tensor in tensors[:count]])
    for tensor, result in zip(
        tensors[count:], results if isinstance(results, tuple) else (results,), strict=True
    ):
        tensor.copyfrom(np.ascontiguousarray(result.astype(str(tensor.dtype))))


def register() -> Reference:
    """A fresh backend under its name."""
    import tvm

    backend = Reference()
    tvm.register_global_func(f"relax.ext.{NAME}", backend.generate, override=True)
    return backend


def unregister() -> None:
    from tvm_ffi.registry import remove_global_func

    remove_global_func(f"relax.ext.{NAME}")


def evaluate(function: Any, arguments: list[Any]) -> Any:
    """A Relax function by numpy."""
    from tvm import relax

    env: dict[Any, Any] = dict(zip(function.params, arguments, strict=True))

    def value(expression: Any) -> Any:
        import tvm

        if isinstance(expression, relax.Var):
            return env[expression]
        if isinstance(expression, tvm.ir.GenericConst):
            return expression.value.numpy()
        if isinstance(expression, relax.Tuple):
            return tuple(map(value, expression.fields))
        if isinstance(expression, relax.TupleGetItem):
            return value(expression.tuple_value)[expression.index]
        if isinstance(expression, relax.Function):
            return expression
        arguments = list(map(value, expression.args))
        if expression.op in env:
            return evaluate(env[expression.op], arguments)
        return OPS[expression.op.name](arguments, expression.attrs)

    for block in function.body.blocks:
        for binding in block.bindings:
            env[binding.var] = value(binding.value)
    return value(function.body.body)


def conv2d(arguments: list[Array], attrs: Any) -> Array:
    """A convolution, NCHW, with padding and without strides, dilation or groups."""
    x, w = arguments
    top, left, bottom, right = map(int, attrs.padding)
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
    summed: Array = np.einsum("nchwij,ocij->nohw", windows, w).astype(x.dtype)
    return summed


def batch_norm(arguments: list[Array], attrs: Any) -> tuple[Array, Array, Array]:
    x, scale, bias, mean, var = arguments
    by_channel = [a.reshape(1, -1, 1, 1) for a in (scale, bias, mean, var)]
    y = (x - by_channel[2]) / np.sqrt(by_channel[3] + attrs.epsilon) * by_channel[0] + by_channel[1]
    return y.astype(x.dtype), mean, var


def quantize(arguments: list[Array], attrs: Any) -> Array:
    x, scale, zero = (np.asarray(g, np.float64) for g in arguments)
    info = np.iinfo(str(attrs.out_dtype))
    return np.clip(np.rint(x / scale) + zero, info.min, info.max).astype(str(attrs.out_dtype))


def dequantize(arguments: list[Array], attrs: Any) -> Array:
    x, scale, zero = arguments
    plain = (x.astype(np.float32) - np.asarray(zero, np.float32)) * scale
    return plain.astype(str(attrs.out_dtype))


OPS: dict[str, Callable[[list[Any], Any], Any]] = {
    "relax.nn.conv2d": conv2d,
    "relax.nn.batch_norm": batch_norm,
    "relax.nn.relu": lambda arguments, attrs: np.maximum(arguments[0], 0),
    "relax.tanh": lambda arguments, attrs: np.tanh(arguments[0]),
    "relax.add": lambda arguments, attrs: arguments[0] + arguments[1],
    "relax.astype": lambda arguments, attrs: arguments[0].astype(str(attrs.dtype)),
    "relax.quantize": quantize,
    "relax.dequantize": dequantize,
}


def patterns() -> tuple[Any, ...]:
    """The longest first: conv + batch norm + relu, conv + add + relu, conv + relu, and so on."""
    from tvm.relax.dpl import is_op, is_tuple_get_item, wildcard

    def conv() -> Any:
        return is_op("relax.nn.conv2d")(wildcard(), wildcard())

    def norm(x: Any) -> Any:
        parameters = (wildcard() for _ in range(4))
        return is_tuple_get_item(is_op("relax.nn.batch_norm")(x, *parameters), 0)

    def add(x: Any) -> Any:
        return is_op("relax.add")(x, wildcard())

    relu = is_op("relax.nn.relu")
    return (
        (f"{NAME}.conv_norm_relu", relu(norm(conv()))),
        (f"{NAME}.conv_add_relu", relu(add(conv()))), (f"{NAME}.conv_relu", relu(conv())),
        (f"{NAME}.conv_add", add(conv())), (f"{NAME}.conv", conv()),
    )  # fmt: skip
