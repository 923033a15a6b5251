"""Rewrites, by op, of nodes that TVM's converters misread into nodes that they convert correctly.

A rewrite returns the Relax expression of a node, mostly by the importer's own conversion of an
equivalent node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autosplit.extras import relax
from autosplit.frontend.onnx.single_node import constant
from autosplit.frontend.relax.expressions import is_constant, shape_of

Attributes = dict[str, Any]
Convert = Callable[[str, Any, dict[str, Any], int], Any]


@dataclass(frozen=True)
class Node:
    """A node in the form that the importer's conversion ``convert`` takes."""

    convert: Convert
    kind: str
    inputs: Any
    attrs: Attributes
    opset: int

    @property
    def dtype(self) -> str:
        """The element type of the first input."""
        return str(self.inputs[0].ty.dtype)

    def converted(self, **changed: Any) -> Any:
        """The importer's conversion of the node, with some of its fields ``changed``.

        ``inputs`` may be a list, in which None is an absent input.
        """
        node = replace(self, **changed)
        inputs = type(self.inputs)()  # the importer's own kind of list
        inputs.extend(node.inputs)
        return node.convert(node.kind, inputs, node.attrs, node.opset)


def _resize(node: Node) -> Any:
    """Resize with the sizes of all axes given, which is the form that the converter gets right.

    Raises ValueError if TVM would resize in another way.
    """
    inputs, attrs = node.inputs, node.attrs
    before = list(shape_of(inputs[0]))
    _, _, scales, sizes = (*inputs, None, None, None)[:4]
    scales, sizes = (None if i is None or 0 in shape_of(i) else i for i in (scales, sizes))
    numbers = sizes if scales is None else scales
    mode = attrs.get("coordinate_transformation_mode")
    if attrs.get("antialias", 0):
        raise ValueError("TVM's importer resizes without antialias")
    if mode in (b"half_pixel_symmetric", b"tf_crop_and_resize"):
        raise ValueError(f"TVM has no {mode.decode()}")
    if "axes" in attrs or attrs.get("keep_aspect_ratio_policy", b"stretch") != b"stretch":
        raise ValueError("TVM's importer resizes all axes, and keeps no aspect ratio")
    if numbers is None or not is_constant(numbers):
        raise ValueError("its scales or sizes are known only at run time; make them constants")
    values = numbers.value.numpy()
    after = [int(n * f) for n, f in zip(before, values, strict=True)]
    if scales is None:
        after = values.tolist()
    elif mode != b"align_corners":
        # TVM scales by the ratio of the sizes, which the standard does for align_corners alone.
        for axis, (n, factor, size) in enumerate(zip(before, values, after, strict=True)):
            if abs(n * factor - size) > 1e-3:
                scaled = f"it scales {n} at axis {axis} by {factor:.4g}"
                raise ValueError(f"{scaled}, which is not a whole size")
    if mode == b"align_corners" and 1 in after[2:]:
        raise ValueError("TVM divides by 0 where it aligns the corners of one pixel")
    if after[:2] != before[:2]:
        reason = "TVM's importer resizes the axes after the second only"
        raise ValueError(f"it resizes {before} to {after}; {reason}")
    return node.converted(inputs=[inputs[0], None, None, constant(np.array(after, np.int64))])


def _slice(node: Node) -> Any:
    """Pass starts, ends and axes as inputs, which they are since opset 10."""
    if node.opset >= 10:
        return node.converted()
    attributes = map(node.attrs.get, ("starts", "ends", "axes"))
    inputs = [None if a is None else constant(np.array(a, np.int64)) for a in attributes]
    return node.converted(inputs=[node.inputs[0], *inputs])


def _pow(node: Node) -> Any:
    """Cast the exponent, which may have any type, to the type of the base and of the result."""
    base, exponent = node.inputs
    return node.converted(inputs=[base, _cast(exponent, node.dtype)])


def _pool(node: Node) -> Any:
    """Give padding as numbers: the converter errs where a stride does not divide a size."""
    attrs = dict(node.attrs)
    mode = attrs.get("auto_pad")
    if mode not in (b"SAME_UPPER", b"SAME_LOWER"):
        return node.converted()
    sizes, kernel = np.array(shape_of(node.inputs[0])[2:]), np.array(attrs["kernel_shape"])
    steps = (attrs.get(name, [1] * kernel.size) for name in ("strides", "dilations"))
    strides, dilations = map(np.array, steps)
    last = (-(-sizes // strides) - 1) * strides + (kernel - 1) * dilations
    total = np.maximum(0, last + 1 - sizes)
    before = total // 2 if mode == b"SAME_UPPER" else total - total // 2
    del attrs["auto_pad"]
    return node.converted(attrs=attrs | {"pads": [*before.tolist(), *(total - before).tolist()]})


def _equal(node: Node) -> Any:
    x, other = node.inputs
    if x.same_as(other) and "float" in node.dtype:
        # TVM simplifies x == x to true.
        return relax.op.logical_not(_normalized(node.converted(kind="IsNaN", inputs=[x])))
    if node.dtype == "bool":
        # TVM compares booleans as floats, and cannot build that.
        return relax.op.logical_not(_normalized(node.converted(kind="Xor")))
    return node.converted()


def _normalized(expression: Any) -> Any:
    return relax.BlockBuilder.current().normalize(expression)


def _product(node: Node) -> Any:
    """Multiply integers without a sign: TVM takes for granted that signed ones do not overflow."""
    if node.dtype not in ("int32", "int64"):
        return _by_zero(node)
    unsigned = [_normalized(_cast(operand, f"u{node.dtype}")) for operand in node.inputs]
    signed = relax.op.astype(_normalized(node.converted(inputs=unsigned)), node.dtype)
    # TVM takes the cast for positive, but what is bitwise for any number.
    return relax.op.bitwise_xor(_normalized(signed), relax.const(0, node.dtype))


def _by_zero(node: Node) -> Any:
    """Give a constant 0 one axis: TVM simplifies ``0 * x`` and ``0 / x`` to 0, where NaN is lost.

    With a tensor of one element it computes them.
    """
    zeros = [_is_zero(operand) for operand in node.inputs]
    if sum(zeros) != 1 or not shape_of(node.inputs[zeros.index(False)]):
        return node.converted()
    pairs = zip(node.inputs, zeros, strict=True)
    inputs = [constant(i.value.numpy().reshape(1)) if z else i for i, z in pairs]
    return node.converted(inputs=inputs)


def _is_zero(operand: Any) -> bool:
    """Whether an operand is a constant 0 of a floating-point type without axes."""
    is_number = is_constant(operand) and not shape_of(operand)
    return is_number and "float" in str(operand.ty.dtype) and not operand.value.numpy()


def _compress(node: Node) -> Any:
    """Take the elements by index if the condition is constant, so that their number is known."""
    data, condition = node.inputs
    if not is_constant(condition):
        return node.converted()
    places = constant(np.flatnonzero(condition.value.numpy()))
    data = data if "axis" in node.attrs else relax.op.flatten(data)
    return relax.op.take(data, places, node.attrs.get("axis", 0))


def _layer_normalization(node: Node) -> Any:
    """Compute bfloat16 in float32, as the specification does."""
    if node.dtype != "bfloat16":
        return node.converted()
    floats = [i if i is None else _normalized(_cast(i, "float32")) for i in node.inputs]
    return _cast(_normalized(node.converted(inputs=floats)[0]), "bfloat16")


def _pairwise(node: Node) -> Any:
    """Convert an op of any number of tensors to a chain of binary ops.

    TVM's importer would stack the tensors, which copies each of them and which no pass fuses.
    """
    if all(map(is_constant, node.inputs)):
        return node.converted()
    combine = {"Max": relax.op.maximum, "Min": relax.op.minimum}.get(node.kind, relax.op.add)
    total, *others = node.inputs
    for operand in others:
        total = _normalized(combine(total, operand))
    if node.kind != "Mean" or not others:
        return total
    return _normalized(relax.op.divide(total, relax.const(len(node.inputs), node.dtype)))


def _cast(value: Any, dtype: str) -> Any:
    """``value`` with another element type."""
    if is_constant(value):
        return constant(value.value.numpy().astype(dtype))
    return relax.op.astype(value, dtype)


REWRITES: dict[str, Callable[[Node], Any]] = {
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), _pool),
    **dict.fromkeys(("Max", "Mean", "Min", "Sum"), _pairwise),
    "Compress": _compress,
    "Div": _by_zero,
    "Dropout": lambda node: node.inputs[0],  # one that drops values was refused before
    "Equal": _equal,
    "LayerNormalization": _layer_normalization,
    "Mul": _product,
    # TVM takes the negation of x < y for x >= y, which differs for NaN.
    "Not": lambda node: node.converted(kind="Xor", inputs=[*node.inputs, constant(True)]),
    "Pow": _pow,
    "Resize": _resize,
    "Scatter": lambda node: node.converted(kind="ScatterElements", opset=11),  # its newer name
    "Slice": _slice,
    # k is an input since opset 10, but to the importer only since 11.
    "TopK": lambda node: node.converted(opset=11 if node.opset == 10 else node.opset),
}
