"""Small values that are known before the model runs: the arithmetic on shapes that exporters leave in a graph.

TVM's converters want a shape as a constant, and compute with constants only here and there. ONNX's own evaluator does it
for every op.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

_LARGEST = 1024  # elements; what is larger is no shape, and is folded later
_ARITHMETIC = """
    Abs Add And Cast CastLike Ceil Concat Div Equal Flatten Floor Gather GatherElements GatherND Greater GreaterOrEqual
    Identity Less LessOrEqual Max Min Mod Mul Neg Not Or Pow ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum Reshape
    Round Shape Size Slice Split Sqrt Squeeze Sub Transpose Unsqueeze Where Xor
"""
_KINDS = frozenset(_ARITHMETIC.split())
_GROWING = frozenset(
    {"ConstantOfShape", "Expand", "Range", "Tile"}
)  # a few numbers can ask for a terabyte


def constant(array: Any) -> Any:
    """A Relax constant of the array's own dtype."""
    from tvm import relax

    array = np.asarray(array)
    return relax.const(array, str(array.dtype))


def fixed_shape(value: Any) -> Any | None:
    """The constant that a shape of fixed sizes is, None for anything else."""
    from tvm import relax

    sizes = value.values if isinstance(value, relax.ShapeExpr) else None
    if sizes is None or not all(hasattr(size, "value") for size in sizes):
        return None
    return constant(np.array([int(size.value) for size in sizes], np.int64))


def evaluated(node: Any, inputs: Sequence[Any], opset: int) -> list[Any] | None:
    """The results of an ONNX node on small constants as Relax constants, None where they are not known or not small."""
    import tvm

    given = [i for i in inputs if i is not None]
    if node.op_type == "Size" and given and (shape := fixed_sizes(given[0])) is not None:
        return [constant(np.int64(math.prod(shape)))]
    if node.op_type not in _KINDS | _GROWING or not given:
        return None
    if node.domain not in ("", "ai.onnx") or not all(
        isinstance(i, tvm.ir.GenericConst) for i in given
    ):
        return None
    arrays = dict(zip([n for n in node.input if n], (i.value.numpy() for i in given), strict=False))
    return _run(node, arrays, opset) if _is_small(node.op_type, list(arrays.values())) else None


def fixed_sizes(value: Any) -> list[int] | None:
    """The shape of a tensor-valued expression, None where not every size is a number."""
    sizes = getattr(getattr(value.ty, "shape", None), "values", None)
    return (
        [int(s.value) for s in sizes]
        if sizes is not None and all(hasattr(s, "value") for s in sizes)
        else None
    )


def _is_small(kind: str, arrays: list[Any]) -> bool:
    if sum(a.size for a in arrays) > _LARGEST:
        return False
    if kind not in _GROWING:
        return True
    sizes = [int(v) for a in arrays if a.dtype.kind == "i" for v in a.flat]
    whole = kind != "Range" or all(a.dtype.kind == "i" for a in arrays)
    return whole and math.prod(max(1, abs(v)) for v in sizes) <= _LARGEST


def _run(node: Any, arrays: dict[str, Any], opset: int) -> list[Any] | None:
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    names = [o for o in node.output if o]
    graph = helper.make_graph([node], "known", [_any(n) for n in arrays], [_any(n) for n in names])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, opset)])
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = ReferenceEvaluator(model).run(None, arrays)
        small = all(isinstance(a, np.ndarray | np.generic) and a.size <= _LARGEST for a in found)
        return [constant(a) for a in found] if small and len(names) == len(node.output) else None
    except Exception:  # what it cannot evaluate is left to the importer, which says why
        return None


def _any(name: str) -> Any:
    from onnx import TensorProto, helper

    return helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None)
