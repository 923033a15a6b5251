"""Stages that compute items of several shapes: one ONNX model, whose weights are there once.

Where nodes ask for the shape of a tensor, which may lie in another stage, the answer is looked up
in a table by the number of the variant, and that number follows from the shape of one input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autosplit.extras import helper, numpy_helper
from autosplit.frontend.onnx.static_shapes import Shape, shape_constant, shape_value

_NUMBER = "autosplit/variant"  # the tensor that holds it


def variant_nodes(name: str, axis: int, sizes: Sequence[int]) -> list[Any]:
    """The nodes that find the number of the variant by an input's size of ``axis`` in each."""
    shape, size, equal, flags = (
        f"{_NUMBER}/{part}" for part in ("shape", "size", "equal", "flags")
    )
    return [
        _constant(f"{_NUMBER}/axis", [axis]),
        _constant(f"{_NUMBER}/sizes", sizes),
        helper.make_node("Shape", [name], [shape]),
        helper.make_node("Gather", [shape, f"{_NUMBER}/axis"], [size]),
        helper.make_node("Equal", [size, f"{_NUMBER}/sizes"], [equal]),
        helper.make_node("Cast", [equal], [flags], to=1),  # float32
        helper.make_node("ArgMax", [flags], [_NUMBER], axis=0, keepdims=0),
    ]


def answer_nodes(node: Any, shapes: Sequence[Shape]) -> list[Any]:
    """What a Shape or Size node comes to, given the shape of its input in each variant."""
    if len(set(shapes)) == 1:
        return [shape_constant(node, shapes[0])]
    (output,) = node.output
    table = f"{output}/variants"
    values = np.stack([shape_value(node, shape) for shape in shapes])
    return [
        _constant(table, values),
        helper.make_node("Gather", [table, _NUMBER], [output], axis=0),
    ]


def _constant(name: str, values: Any) -> Any:
    value = numpy_helper.from_array(np.asarray(values, np.int64))
    return helper.make_node("Constant", [], [name], value=value)
