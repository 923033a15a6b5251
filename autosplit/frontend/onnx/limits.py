"""Limits of what the import of a model file may compute or allocate.

A file of a few bytes can ask for a terabyte of constants or a day of arithmetic. The sizes are
derived from shapes before anything is computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from autosplit.errors import ModelError
from autosplit.frontend.onnx.nodes import constants_of
from autosplit.frontend.onnx.shapes import inputs
from autosplit.frontend.onnx.static_shapes import Shape
from autosplit.frontend.relax.expressions import fixed_sizes, is_constant

# Limits for all nodes that read only constants: per number stored in the model, plus a fixed part.
_ELEMENTS_EACH, _MORE_ELEMENTS = 8, 1 << 28
_WORK_EACH, _MORE_WORK = 64, 1 << 34  # multiplications and additions, of TVM's plain kernels
_LARGEST = (1 << 31) - 1  # elements of a tensor; TVM's loops count in 32 bits
_MOST_TENSORS = 4096  # that a node reads; TVM fails at ten thousand
_MOST_ITEMS = 1 << 14  # of all sequences that tensors are split into
_NEVER_LARGER = ("Compress", "NonZero", "Unique")  # than their input, by axis
_QUADRATIC = ("Attention", "DFT", "Det", "GRU", "LSTM", "MultiHeadAttention", "RNN", "STFT")


class Limits:
    """The remaining limits while the nodes of a model are imported, one by one.

    Raises ModelError for an input that is too large. Every method raises ValueError, without the
    name of the node, where a limit is exceeded.
    """

    def __init__(self, model: Any) -> None:
        for signature in inputs(model):
            if math.prod(signature.shape) > _LARGEST:
                size = f"{math.prod(signature.shape):,} elements; at most {_LARGEST:,} work"
                raise ModelError(f"input '{signature.name}' has {size}")
        constants = constants_of(model.graph.node, model.graph.initializer).values()
        stored = sum(math.prod(tensor.dims) for tensor in constants)
        self._elements = _ELEMENTS_EACH * stored + _MORE_ELEMENTS
        self._work = _WORK_EACH * stored + _MORE_WORK
        self._items = _MOST_ITEMS
        self._is_counted = False  # whether the results of the current node are subtracted already

    def check_node(
        self, node: Any, values: Mapping[str, Any], shapes: Sequence[Shape] | None
    ) -> None:
        """Check ``node``, whose inputs are the expressions ``values``, before it is converted.

        ``shapes`` are the shapes of its results if it reads only constants and they are known.
        """
        if len(node.input) > _MOST_TENSORS:
            raise ValueError(f"it reads {len(node.input)} tensors; at most {_MOST_TENSORS} work")
        if node.op_type == "SplitToSequence":
            self._items -= _items(node, values)
            if self._items < 0:
                problem = f"sequences would hold more than {_MOST_ITEMS} tensors"
                raise ValueError(f"{problem}; use Split or Slice")
        self._is_counted = shapes is not None
        if shapes is not None:
            self._spend(node, values, shapes)

    def _spend(self, node: Any, values: Mapping[str, Any], shapes: Sequence[Shape]) -> None:
        """Subtract the results of a node that reads only constants from the remaining limits."""
        elements = sum(map(math.prod, shapes))
        self._elements -= elements
        self._work -= work(node, [_shape(values.get(name)) for name in node.input], elements)
        if self._elements < 0 or self._work < 0:
            what = f"{elements:,} numbers" if self._elements < 0 else "too much arithmetic"
            raise ValueError(
                f"it makes {what} of constants, which exceeds the limit of a model of its size; "
                "store its result as a weight"
            )

    def check_computed(
        self, node: Any, values: Mapping[str, Any], shapes: Sequence[Sequence[Any]]
    ) -> None:
        """Check a node of constants before onnxruntime computes results of ``shapes``."""
        if self._is_counted or node.op_type in _NEVER_LARGER:
            return  # counted already, or bounded by its input
        if not all(shape and all(isinstance(size, int) for size in shape) for shape in shapes):
            raise ValueError("the size of its result is not known; store it as a weight")
        self._spend(node, values, [tuple(shape) for shape in shapes])

    def check_results(
        self, node: Any, values: Mapping[str, Any], results: Iterable[Any], *, of_constants: bool
    ) -> None:
        """Check ``node`` after it is converted to the expressions ``results``."""
        shapes = list(map(_shape, results))
        largest = max(map(math.prod, shapes), default=0)
        if largest > _LARGEST:
            raise ValueError(f"it makes a tensor of {largest:,} elements; at most {_LARGEST:,}")
        if of_constants and not self._is_counted:
            self._spend(node, values, shapes)


def _shape(value: Any) -> Shape:
    """The static shape of an expression; that of a scalar where it has none."""
    return tuple(fixed_sizes(getattr(value, "ty", None)) or ())


def _items(node: Any, values: Mapping[str, Any]) -> int:
    """How many tensors a SplitToSequence makes at most."""
    sizes = _shape(values.get(node.input[0])) or (1,)
    axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
    size = sizes[axis] if -len(sizes) <= axis < len(sizes) else 1
    parts = values.get(node.input[1]) if len(node.input) > 1 else None
    if parts is None or not is_constant(parts):
        return size
    numbers = parts.value.numpy()
    return int(numbers.size) if numbers.ndim else -(-size // max(1, int(numbers)))


def work(node: Any, shapes: Sequence[Shape], elements: int) -> int:
    """Estimate how many numbers are added up at most for ``elements`` results of such tensors."""
    kind, weight = node.op_type, shapes[1] if len(shapes) > 1 else ()
    if kind == "Einsum":
        return math.prod(map(math.prod, shapes))
    if kind == "Concat" and len(shapes[0]) == 1:  # TVM makes an expression of each number
        return elements << 12
    if "Conv" in kind:
        return elements * math.prod((shapes[3] if len(shapes) > 3 else weight)[1:])
    if "Pool" in kind:
        kernel = next((a.ints for a in node.attribute if a.name == "kernel_shape"), ())
        return elements * math.prod(map(int, kernel))
    if kind in ("Gemm", "MatMul", "MatMulInteger", "QLinearMatMul"):
        is_transposed = any(a.name == "transA" and a.i for a in node.attribute)
        return elements * (shapes[0] or (1,))[0 if is_transposed else -1]
    is_product = "MatMul" in kind or kind in _QUADRATIC
    return elements * (max(chain(*shapes), default=1) if is_product else 1)
