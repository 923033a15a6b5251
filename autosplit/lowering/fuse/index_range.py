"""How large the integers of an input may be: what ends up as an index must stay inside the tensor it looks into.

An interval of values goes along with each variable that depends on the input (interval arithmetic, Moore 1966), as far as
importers write index arithmetic: a negative index wrapped round, clipped, cast, reshaped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from autosplit.frontend.onnx.shape_arithmetic import fixed_sizes
from autosplit.frontend.relax.main_function import bindings
from autosplit.frontend.source import SourceModel
from autosplit.lowering.fuse.flat import variables

FREE = 16  # integers that are no index: enough to tell them apart, few enough for an exponential
LARGEST = 1 << 31
Range = tuple[float, float] | None  # None: unknown

_KEEPS = frozenset({
    "astype", "broadcast_to", "expand_dims", "flatten", "flip", "max", "min", "permute_dims", "repeat", "reshape", "squeeze",
    "strided_slice", "tile",
})  # fmt: skip
_BOOLEAN = frozenset({
    "equal", "greater", "greater_equal", "isnan", "less", "less_equal", "logical_and", "logical_not", "logical_or",
    "logical_xor", "not_equal",
})  # fmt: skip
_HARMLESS = frozenset({
    "abs", "add", "bitwise_and", "bitwise_or", "bitwise_xor", "clip", "concat", "cos", "cumsum", "divide", "exp",
    "floor_divide", "floor_mod", "full_like", "matmul", "maximum", "mean", "minimum", "mod", "multiply", "negative", "nn.relu",
    "nn.softmax", "one_hot", "ones_like", "round", "shape_of", "sigmoid", "sign", "sin", "split", "sqrt", "square", "stack",
    "subtract", "sum", "tanh", "where", "zeros_like",
})  # fmt: skip
_LOOKS_UP = frozenset({"take", "gather_elements", "gather_nd", "scatter_elements", "scatter_nd"})


def integers_below(source: SourceModel) -> Mapping[str, int]:
    """By name of an input of 32 or 64 bit integers what random values stay below; left out where only 0 and 1 are safe."""
    main = source.module["main"]
    found = {}
    for param, signature in zip(main.params, source.inputs, strict=True):
        if (
            signature.dtype in ("int32", "int64", "uint32", "uint64")
            and (below := _below(main, param)) > 2
        ):
            found[signature.name] = below
    return found


def _below(main: Any, param: Any) -> int:
    """The largest of some numbers whose values stay inside: the sizes looked into and, for an offset, their halves."""
    candidates = set(_Walk(param, FREE).run(main).sizes) or {FREE}
    for size in tuple(candidates):
        candidates.update(size >> n for n in range(1, size.bit_length()))
    fitting = (c for c in sorted(candidates, reverse=True) if 2 < c < LARGEST)
    return next((c for c in fitting if _Walk(param, c).run(main).fits), 2)


@dataclass
class _Walk:
    """What the values 0 to ``below`` - 1 of ``param`` lead to; ``sizes`` are those of the axes they look into."""

    param: Any
    below: int
    sizes: list[int] = field(default_factory=list)
    fits: bool = True

    def run(self, main: Any) -> _Walk:
        self._ranges: dict[Any, Range] = {self.param: (0, self.below - 1)}
        for binding in bindings(main):
            value = getattr(binding, "value", None)
            if value is not None and self._depends(value):
                depends, found = self._value(value)
                if depends:
                    self._ranges[binding.var] = found
        return self

    def _depends(self, value: Any) -> bool:
        return any(v in self._ranges for v in variables(value))

    def _value(self, value: Any) -> tuple[bool, Range]:
        """Whether the result depends on the values of the input, and the range of the result."""
        from tvm import relax

        if not isinstance(value, relax.Call):
            return True, self._range(value)
        name = str(getattr(value.op, "name", "")).removeprefix("relax.")
        given = [self._range(a) for a in value.args]
        if name in _LOOKS_UP:
            return self._look_up(name, value, given)
        if name not in _KEEPS | _BOOLEAN | _HARMLESS:
            self.fits = False  # whatever it does with the values
        return True, _fitting(_result(name, given), str(getattr(value.ty, "dtype", "")))

    def _look_up(self, name: str, call: Any, given: list[Range]) -> tuple[bool, Range]:
        if self._depends(call.args[1]):
            size = _size(name, call)
            self.sizes.append(size)
            self.fits = (
                self.fits and given[1] is not None and -size <= given[1][0] and given[1][1] < size
            )
        others = [a for i, a in enumerate(call.args) if i != 1]
        return any(map(self._depends, others)), _union([g for i, g in enumerate(given) if i != 1])

    def _range(self, value: Any) -> Range:
        import tvm
        from tvm import relax

        if isinstance(value, tvm.ir.GenericConst):
            array = value.value.numpy()
            return (
                (float(array.min()), float(array.max()))
                if array.size and array.dtype.kind in "biu"
                else None
            )
        if isinstance(value, relax.TupleGetItem):
            return self._range(value.tuple_value)
        if isinstance(value, relax.Tuple):
            return _union([self._range(item) for item in value.fields])
        return self._ranges.get(value) if isinstance(value, relax.Var) else None


def _result(name: str, given: list[Range]) -> Range:
    if name in _BOOLEAN:
        return _compared(name, given)
    if name in _KEEPS or name in ("concat", "split", "stack"):
        return given[0]
    if name == "where":
        condition = given[0]
        return (
            given[2]
            if condition == (0, 0)
            else given[1]
            if condition == (1, 1)
            else _union(given[1:])
        )
    if len(given) != 2 or given[0] is None or given[1] is None:
        return None
    (a, b), (c, d) = given[0], given[1]
    if name == "floor_mod" and c == d > 0:
        return (0, d - 1)
    return {
        "add": (a + c, b + d),
        "subtract": (a - d, b - c),
        "multiply": (min(a * c, a * d, b * c, b * d), max(a * c, a * d, b * c, b * d)),
        "minimum": (min(a, c), min(b, d)),
        "maximum": (max(a, c), max(b, d)),
    }.get(name)


def _compared(name: str, given: list[Range]) -> Range:
    if name == "less" and given[0] is not None and given[1] is not None:
        (a, b), (c, d) = given[0], given[1]
        return (1, 1) if b < c else (0, 0) if a >= d else (0, 1)
    return (0, 1)


def _union(ranges: list[Range]) -> Range:
    known = [r for r in ranges if r is not None]
    return (
        (min(a for a, _ in known), max(b for _, b in known))
        if known and len(known) == len(ranges)
        else None
    )


def _fitting(found: Range, dtype: str) -> Range:
    """The range as ``dtype`` holds it; None where it would wrap round."""
    import numpy as np

    if found is None or dtype[:3] not in ("int", "uin"):
        return found
    kind = np.iinfo(dtype)
    return found if kind.min <= found[0] and found[1] <= kind.max else None


def _size(name: str, call: Any) -> int:
    """The smallest axis that the indices of a call look into; 1 where sizes are unknown."""
    shape, indices = fixed_sizes(call.args[0]), fixed_sizes(call.args[1])
    if shape is None or indices is None:
        return 1
    if name in ("gather_nd", "scatter_nd"):
        start = int(getattr(call.attrs, "batch_dims", 0))
        return min(shape[start : start + indices[-1]], default=1)
    return prod(shape) if call.attrs.axis is None else shape[int(call.attrs.axis)]
