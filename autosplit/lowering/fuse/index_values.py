"""How large the integers of an input may be: an index must stay inside the tensor it looks into.

Interval arithmetic (Moore 1966): a range of values goes along with each variable that depends on
the input, as far as importers write index arithmetic, which is to wrap a negative index round,
to clip, to cast and to reshape.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from autosplit.extras import relax
from autosplit.frontend.relax.expressions import fixed_sizes, is_constant, variables
from autosplit.frontend.relax.main_function import bindings
from autosplit.frontend.source import SourceModel

# Integers that are no index: enough to tell them apart, few enough for an exponential.
NOT_INDICES = 16
LARGEST = 1 << 31
WIDE_INTEGERS = ("int32", "int64", "uint32", "uint64")
Range = tuple[float, float] | None  # None: unknown

_KEEPS = frozenset({
    "astype", "broadcast_to", "expand_dims", "flatten", "flip", "max", "min", "permute_dims",
    "repeat", "reshape", "squeeze", "strided_slice", "tile",
})  # fmt: skip
_BOOLEAN = frozenset({
    "equal", "greater", "greater_equal", "isnan", "less", "less_equal", "logical_and",
    "logical_not", "logical_or", "logical_xor", "not_equal",
})  # fmt: skip
_HARMLESS = frozenset({
    "abs", "add", "bitwise_and", "bitwise_or", "bitwise_xor", "clip", "concat", "cos", "cumsum",
    "divide", "exp", "floor_divide", "floor_mod", "full_like", "matmul", "maximum", "mean",
    "minimum", "mod", "multiply", "negative", "nn.relu", "nn.softmax", "one_hot", "ones_like",
    "round", "shape_of", "sigmoid", "sign", "sin", "split", "sqrt", "square", "stack", "subtract",
    "sum", "tanh", "where", "zeros_like",
})  # fmt: skip
LOOKS_UP = frozenset({
    "take", "gather_elements", "gather_nd", "scatter_elements", "scatter_nd",
})  # fmt: skip


def integers_below(source: SourceModel) -> Mapping[str, int]:
    """By input of 32 or 64 bit integers the number that random values stay below.

    An input is left out where only 0 and 1 are safe.
    """
    main = source.module["main"]
    limits = {}
    for param, signature in zip(main.params, source.inputs, strict=True):
        if signature.dtype in WIDE_INTEGERS:
            below = _below(main, param)
            if below > 2:
                limits[signature.name] = below
    return limits


def _below(main: Any, param: Any) -> int:
    """The largest candidate whose values stay inside every tensor they look into, else 2.

    Candidates are the sizes looked into and, for an index with an offset, their halves.
    """
    candidates = set(_Walk(param, NOT_INDICES).run(main).sizes) or {NOT_INDICES}
    for size in tuple(candidates):
        candidates.update(size >> n for n in range(1, size.bit_length()))
    for candidate in sorted(candidates, reverse=True):
        if 2 < candidate < LARGEST and _Walk(param, candidate).run(main).fits:
            return candidate
    return 2


@dataclass
class _Walk:
    """What the values 0 to ``below`` - 1 of ``param`` lead to.

    ``sizes`` are those of the axes they look into; ``fits``: they stay inside.
    """

    param: Any
    below: int
    sizes: list[int] = field(default_factory=list)
    fits: bool = True

    def run(self, main: Any) -> _Walk:
        self._ranges: dict[Any, Range] = {self.param: (0, self.below - 1)}
        for binding in bindings(main):
            if self._depends(binding.value):
                depends, result = self._value(binding.value)
                if depends:
                    self._ranges[binding.var] = result
        return self

    def _depends(self, value: Any) -> bool:
        return any(v in self._ranges for v in variables(value))

    def _value(self, value: Any) -> tuple[bool, Range]:
        """Whether the result depends on the values of the input, and the range of the result."""
        if not isinstance(value, relax.Call):
            return True, self._range(value)
        name = str(getattr(value.op, "name", "")).removeprefix("relax.")
        ranges = [self._range(a) for a in value.args]
        if name in LOOKS_UP:
            return self._look_up(name, value, ranges)
        if name not in _KEEPS | _BOOLEAN | _HARMLESS:
            # An op that is not known may do anything with the values.
            self.fits = False
        return True, _without_overflow(_result(name, ranges), str(getattr(value.ty, "dtype", "")))

    def _look_up(self, name: str, call: Any, ranges: list[Range]) -> tuple[bool, Range]:
        if self._depends(call.args[1]):
            size, indices = axis_size(name, call), ranges[1]
            self.sizes.append(size)
            inside = indices is not None and -size <= indices[0] and indices[1] < size
            self.fits = self.fits and inside
        others = [a for i, a in enumerate(call.args) if i != 1]
        result = _union([r for i, r in enumerate(ranges) if i != 1])
        return any(map(self._depends, others)), result

    def _range(self, value: Any) -> Range:
        if is_constant(value):
            array = value.value.numpy()
            is_known = array.size and array.dtype.kind in "biu"
            return (float(array.min()), float(array.max())) if is_known else None
        if isinstance(value, relax.TupleGetItem):
            return self._range(value.tuple_value)
        if isinstance(value, relax.Tuple):
            return _union([self._range(item) for item in value.fields])
        return self._ranges.get(value) if isinstance(value, relax.Var) else None


def _result(name: str, ranges: list[Range]) -> Range:
    """The range of the result of op ``name`` from the ranges of its arguments."""
    if name in _BOOLEAN:
        return _compared(name, ranges)
    if name in _KEEPS or name in ("concat", "split", "stack"):
        return ranges[0]
    if name == "where":
        if ranges[0] == (0, 0):
            return ranges[2]
        return ranges[1] if ranges[0] == (1, 1) else _union(ranges[1:])
    if len(ranges) != 2 or ranges[0] is None or ranges[1] is None:
        return None
    (a, b), (c, d) = ranges[0], ranges[1]
    if name == "floor_mod" and c == d > 0:
        return (0, d - 1)
    return {
        "add": (a + c, b + d),
        "subtract": (a - d, b - c),
        "multiply": (min(a * c, a * d, b * c, b * d), max(a * c, a * d, b * c, b * d)),
        "minimum": (min(a, c), min(b, d)),
        "maximum": (max(a, c), max(b, d)),
    }.get(name)


def _compared(name: str, ranges: list[Range]) -> Range:
    if name == "less" and ranges[0] is not None and ranges[1] is not None:
        (a, b), (c, d) = ranges[0], ranges[1]
        if b < c:
            return (1, 1)
        if a >= d:
            return (0, 0)
    return (0, 1)


def _union(ranges: list[Range]) -> Range:
    known = [r for r in ranges if r is not None]
    if not known or len(known) < len(ranges):
        return None
    return (min(low for low, _ in known), max(high for _, high in known))


def _without_overflow(values: Range, dtype: str) -> Range:
    """The range as ``dtype`` holds it; None where it would wrap round."""
    import numpy as np

    if values is None or not dtype.startswith(("int", "uint")):
        return values
    limits = np.iinfo(dtype)
    return values if limits.min <= values[0] and values[1] <= limits.max else None


def axis_size(name: str, call: Any) -> int:
    """The smallest axis that the indices of a call look into; 1 where sizes are unknown."""
    shape, indices = (fixed_sizes(operand.ty) for operand in call.args[:2])
    if shape is None or indices is None:
        return 1
    if name in ("gather_nd", "scatter_nd"):
        start = int(getattr(call.attrs, "batch_dims", 0))
        return min(shape[start : start + indices[-1]], default=1)
    return prod(shape) if call.attrs.axis is None else shape[int(call.attrs.axis)]
