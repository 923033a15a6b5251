"""Which integers of an input are legal where a model looks them up in a tensor.

Only what is sure: every element of the input reaches the indices of an op that an output depends
on, as it is or with a negative one wrapped round. ``index_values`` bounds what is drawn at random,
for which a guess will do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from autosplit.extras import relax
from autosplit.frontend.relax.expressions import fixed_sizes, is_constant, variables
from autosplit.frontend.relax.main_function import bindings
from autosplit.frontend.source import SourceModel
from autosplit.lowering.fuse.index_values import LOOKS_UP, axis_size

_SAME_ELEMENTS = frozenset({
    "broadcast_to", "expand_dims", "flatten", "flip", "permute_dims", "repeat", "reshape",
    "squeeze", "tile",
})  # fmt: skip
Range = tuple[int, int]  # the least and the largest


def index_ranges(source: SourceModel) -> Mapping[str, Range]:
    """The legal values by input; inputs whose legal values are not sure are left out."""
    main = source.module["main"]
    names = {param: s.name for param, s in zip(main.params, source.inputs, strict=True)}
    ranges: dict[str, Range] = {}
    for param, (low, high) in _Reader(main).look_ups():
        if param in names:
            least, most = ranges.get(names[param], (low, high))
            ranges[names[param]] = max(least, low), min(most, high)
    return ranges


class _Reader:
    """Follows the values of ``main`` back to its inputs."""

    def __init__(self, main: Any) -> None:
        self._main = main
        self._values = {binding.var: binding.value for binding in bindings(main)}

    def look_ups(self) -> Iterator[tuple[Any, Range]]:
        """The variables whose elements all are indices, with the indices that are legal."""
        for value in self._computed():
            if _name(value) in LOOKS_UP and getattr(value.attrs, "mode", "fast") == "fast":
                size = _one_axis(value)
                wrapped = self._wrapped(value.args[1], size)
                if size is not None and wrapped is not None:
                    yield self._origin(wrapped), (-size, size - 1)
                elif size is not None:
                    yield self._origin(value.args[1]), (0, size - 1)

    def _computed(self) -> list[Any]:
        """What the outputs depend on; the rest is never computed."""
        read, computed = set(variables(self._main.body.body)), []
        for var, value in reversed(self._values.items()):
            if var in read:
                read.update(variables(value))
                computed.append(value)
        return computed

    def _call(self, value: Any) -> Any:
        while isinstance(value, relax.Var) and value in self._values:
            value = self._values[value]
        return value

    def _origin(self, value: Any) -> Any:
        """What the elements of a value are read from, each of them at least once."""
        while True:
            call = self._call(value)
            name = _name(call)
            if name in _SAME_ELEMENTS or (name == "astype" and _holds(call, call.args[0])):
                value = call.args[0]
            elif name == "concat" and len(getattr(call.args[0], "fields", ())) == 1:
                value = call.args[0].fields[0]
            else:
                return call

    def _wrapped(self, value: Any, size: int | None) -> Any:
        """The x of ``where(x < 0, x + size, x)``, as importers write negative indices, or None."""
        where = self._call(value)
        if _name(where) != "where":
            return None
        condition, sum_, x = map(self._call, where.args)
        if _name(condition) != "less" or _name(sum_) != "add":
            return None
        if not all(self._call(c.args[0]).same_as(x) for c in (condition, sum_)):
            return None
        bounds = self._number(condition.args[1]), self._number(sum_.args[1])
        return where.args[2] if bounds == (0, size) else None

    def _number(self, value: Any) -> int | None:
        """A constant or the size of an axis, None for whatever else there is."""
        call = self._call(value)
        if is_constant(call):
            array = call.value.numpy()
            return int(array.item()) if array.size == 1 and array.dtype.kind in "iu" else None
        if _name(call) == "astype":
            return self._number(call.args[0])
        if _name(call) == "take":
            axis = self._number(call.args[1])
        elif _name(call) == "strided_slice" and len(call.args[2].fields) == 1:
            axis = int(call.args[2].fields[0].value)
            if [int(end.value) for end in call.args[3].fields] != [axis + 1]:
                return None
        else:
            return None
        sizes = self._sizes(call.args[0])
        return sizes[axis] if sizes and axis is not None and axis < len(sizes) else None

    def _sizes(self, value: Any) -> list[int] | None:
        """The numbers in the shape of a tensor, where a value is that shape as a tensor."""
        call = self._call(value)
        if _name(call) != "shape_to_tensor":
            return None
        shape = self._call(call.args[0])
        return fixed_sizes(shape.args[0].ty if _name(shape) == "shape_of" else shape)


def _name(value: Any) -> str:
    if not isinstance(value, relax.Call):
        return ""
    return str(getattr(value.op, "name", "")).removeprefix("relax.")


def _holds(cast: Any, argument: Any) -> bool:
    """Whether a cast keeps every integer."""
    before, after = str(argument.ty.dtype), str(cast.ty.dtype)
    return "int" in before and "int" in after and bool(np.can_cast(before, after))


def _one_axis(call: Any) -> int | None:
    """The size of the axis that the indices of a call look into; None unless it is one."""
    shape, indices = (fixed_sizes(operand.ty) for operand in call.args[:2])
    if shape is None or indices is None or (_name(call).endswith("_nd") and indices[-1] != 1):
        return None
    return axis_size(_name(call), call)
