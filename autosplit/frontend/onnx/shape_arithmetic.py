"""Evaluates small values known before the model runs: the arithmetic on shapes in exported graphs.

TVM's converters want a shape as a constant, and compute with constants only here and there. ONNX's
own evaluator computes every op.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autosplit.extras import helper, onnx, relax
from autosplit.frontend.relax.expressions import fixed_sizes, is_constant

_MAX_ELEMENTS = 1024  # what is larger is no shape, and is folded later
_ARITHMETIC = """
    Abs Add And Cast CastLike Ceil Concat Div Equal Flatten Floor Gather GatherElements GatherND
    Greater GreaterOrEqual Identity Less LessOrEqual Max Min Mod Mul Neg Not Or Pow ReduceMax
    ReduceMean ReduceMin ReduceProd ReduceSum Reshape Round Shape Size Slice Split Sqrt Squeeze Sub
    Transpose Unsqueeze Where Xor
"""
_KINDS = frozenset(_ARITHMETIC.split())
# A few numbers can ask these for a terabyte.
_GROWING = frozenset({"ConstantOfShape", "Expand", "Range", "Tile"})


def constant(array: Any) -> Any:
    """A Relax constant of the array's own dtype."""
    array = np.asarray(array)
    return relax.const(array, str(array.dtype))


def fixed_shape(value: Any) -> Any | None:
    """A shape of fixed sizes as a constant, None for anything else."""
    sizes = fixed_sizes(value) if isinstance(value, relax.ShapeExpr) else None
    return None if sizes is None else constant(np.array(sizes, np.int64))


def evaluated(node: Any, inputs: Sequence[Any], opset: int) -> list[Any] | None:
    """The results of an ONNX node on small constants, as Relax constants; None if not known."""
    present = [i for i in inputs if i is not None]
    if node.op_type == "Size" and present:
        shape = fixed_sizes(present[0].ty)
        if shape is not None:
            return [constant(np.int64(math.prod(shape)))]
    if not all(map(is_constant, present)):
        return None
    names = [name for name in node.input if name]
    arrays = dict(zip(names, (i.value.numpy() for i in present), strict=False))
    results = computed(node, arrays, opset)
    return None if results is None else [constant(a) for a in results]


def computed(node: Any, arrays: dict[str, Any], opset: int) -> list[Any] | None:
    """The results of an ONNX node on small arrays by name; None if it is not for shapes."""
    if node.op_type not in _KINDS | _GROWING or node.domain not in ("", "ai.onnx"):
        return None
    if not arrays or sum(a.size for a in arrays.values()) > _MAX_ELEMENTS:
        return None
    if node.op_type in _GROWING and not _stays_small(node, arrays):
        return None
    return _run(node, arrays, opset)


def input_list(inputs: Any, items: Sequence[Any]) -> Any:
    """Inputs in the importer's own kind of list, in which an absent one is None."""
    result = type(inputs)()
    result.extend(items)
    return result


def _stays_small(node: Any, arrays: Mapping[str, Any]) -> bool:
    """Whether an op in _GROWING makes a tensor small enough to be computed."""
    values = [arrays[name] for name in node.input if name in arrays]
    if node.op_type == "Range":
        if len(values) != 3 or any(a.size != 1 or a.dtype.kind != "i" for a in values):
            return False
        start, limit, step = (int(a.item()) for a in values)
        return abs(limit - start) <= _MAX_ELEMENTS * abs(step)
    shape = values[-1]
    # The first input, which is small, is repeated as often at the most.
    is_shape = shape.dtype.kind == "i"
    return is_shape and math.prod(max(1, abs(int(size))) for size in shape.flat) <= _MAX_ELEMENTS


def _run(node: Any, arrays: dict[str, Any], opset: int) -> list[Any] | None:
    from onnx.reference import ReferenceEvaluator

    names = [o for o in node.output if o]
    graph = helper.make_graph([node], "known", [_any(n) for n in arrays], [_any(n) for n in names])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, opset)])
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            results: Any = ReferenceEvaluator(model).run(None, arrays)
        are_arrays = all(isinstance(a, np.ndarray | np.generic) for a in results)
        if not are_arrays or len(names) != len(node.output):
            return None
        if any(a.size > _MAX_ELEMENTS for a in results):
            return None
        return [np.asarray(a) for a in results]
    except Exception:  # what it cannot evaluate is left to the importer, which says why
        return None


def _any(name: str) -> Any:
    # The evaluator goes by the arrays themselves, not by declared types.
    return helper.make_tensor_value_info(name, onnx.TensorProto.UNDEFINED, None)
