"""Indices: keeps lookups inside their tensors and finds which integers an input may hold.

TVM's lookup kernels do not check their indices: an index that is out of bounds reads or overwrites
memory outside the tensor. In a model file, indices are constants as often as inputs.

The range of an input is certain if each element is an index of an op that an output depends on. The
limit of random integers also considers all other lookups whose indices depend on their values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from autosplit.extras import relax, topi, tvm
from autosplit.frontend.relax.expressions import (
    callee,
    fixed_sizes,
    is_constant,
    operator,
    variables,
)
from autosplit.frontend.relax.kernel_bounds import clamped
from autosplit.frontend.relax.main_function import bindings
from autosplit.frontend.source import OPAQUE, SourceModel

LOOKUPS = frozenset({
    "relax.gather_elements", "relax.gather_nd", "relax.index_put", "relax.index_tensor",
    "relax.multinomial_from_uniform", "relax.nn.nll_loss", "relax.reverse_sequence",
    "relax.scatter_elements", "relax.scatter_nd", "relax.take",
})  # fmt: skip
Range = tuple[int, int]  # the least and the largest value, both included
_ALWAYS_LEGAL, _LARGEST = 2, 1 << 31  # exclusive limits of random integers
_WIDE_INTEGERS = ("int32", "int64", "uint32", "uint64")
_SIZED = frozenset({"take", "gather_elements", "gather_nd", "scatter_elements", "scatter_nd"})
_UNKNOWN = {"", "call_dps_packed", "call_pure_packed", "call_tir"}.union(
    name.removeprefix("relax.") for name in LOOKUPS
)
# Prefixes of the names of opaque ops that compute with any integers and look nothing up.
_OPAQUE_OF_NUMBERS = tuple(
    OPAQUE + kind
    for kind in (
        "BitShift", "ConvInteger", "DequantizeLinear", "MatMulInteger", "MaxPool", "MulInteger",
        "NhwcMaxPool", "QGemm", "QLinear", "Reduce", "Resize", "Sign", "SpaceToDepth", "Upsample",
    )
)  # fmt: skip
_SAME_ELEMENTS = frozenset({
    "broadcast_to", "expand_dims", "flatten", "flip", "permute_dims", "repeat", "reshape",
    "squeeze", "tile",
})  # fmt: skip
_PARTS = ("strided_slice", "take")  # a part of a tensor with one element is that element
# The range of their results does not depend on the values that they read.
_BOUNDED = frozenset({
    "equal", "greater", "greater_equal", "less", "less_equal", "not_equal", "shape_of",
})  # fmt: skip


def bound_lookups(module: Any) -> Any:
    """Lower lookups to kernels that take the nearest element where an index is out of bounds.

    Other calls stay as they are. A target must be in scope.
    """
    others = [name for name in tvm.ir.Op.list_op_names() if name not in LOOKUPS]
    legalize = relax.transform.LegalizeOps({"relax.take": _legalize_take}, skip_ops=others)
    bound = tvm.tirx.transform.Apply(clamped)
    return bound(legalize(relax.backend.DispatchSampling()(module)))


def _legalize_take(builder: Any, call: Any) -> Any:
    # For mode "fast", which checks nothing, TVM prints a warning to standard error.
    mode = "clip" if call.attrs.mode == "fast" else call.attrs.mode
    data, indices = call.args
    return builder.call_te(topi.take, data, indices, call.attrs.axis, mode=mode)


@dataclass(frozen=True)
class _LookUp:
    """An op that accesses a tensor at indices.

    ``size`` is the exclusive limit of random elements of ``origin``, by the smallest axis that is
    indexed. The indices are these elements, perhaps with constants added, and depend on the inputs
    ``depends``. ``legal`` is the range of integers that ``origin`` may hold, where it is certain.
    """

    size: int
    origin: Any
    depends: frozenset[Any]
    legal: Range | None


def index_ranges(source: SourceModel) -> Mapping[str, Range]:
    """The range of legal values by input; inputs whose range is not certain are left out."""
    names = _names(source)
    ranges: dict[str, Range] = {}
    for look_up in _look_ups(relax.analysis.remove_all_unused(source.module["main"])):
        if look_up.legal and look_up.origin in names:
            least, most = ranges.get(names[look_up.origin], look_up.legal)
            low, high = look_up.legal
            ranges[names[look_up.origin]] = max(least, low), min(most, high)
    return ranges


def integers_below(source: SourceModel) -> Mapping[str, int]:
    """The exclusive upper limit of random values, by integer input.

    It is the size of the smallest axis that they index. Inputs that nothing limits are left out,
    except single numbers, and so are wide integers if only 0 and 1 are safe, their default.
    """
    limits: dict[Any, int] = {}
    # Unused lookups count too, since a reference may compute them.
    for look_up in _look_ups(source.module["main"]):
        for param in look_up.depends:
            size = look_up.size if param == look_up.origin else _ALWAYS_LEGAL
            limits[param] = min(limits.get(param, _LARGEST), size)
    dtypes = {i.name: i.dtype for i in source.inputs if "int" in i.dtype}
    names = {name: param for param, name in _names(source).items() if name in dtypes}
    longest = max((size for i in source.inputs for size in i.shape), default=1)
    for name, param in names.items():
        # A single number may be a length: 0 and 1 would mask nearly all of its sequence.
        if dtypes[name] in _WIDE_INTEGERS and _has_one_element(param):
            limits.setdefault(param, longest + 1)
    below = {name: max(1, limits[param]) for name, param in names.items() if param in limits}
    is_usual = {n: b == _ALWAYS_LEGAL and dtypes[n] in _WIDE_INTEGERS for n, b in below.items()}
    return {name: limit for name, limit in below.items() if not is_usual[name]}


def _names(source: SourceModel) -> Mapping[Any, str]:
    params = source.module["main"].params
    return {param: signature.name for param, signature in zip(params, source.inputs, strict=True)}


def _look_ups(main: Any) -> Iterator[_LookUp]:
    values = {binding.var: binding.value for binding in bindings(main)}
    depends = {param: frozenset([param]) for param in main.params}
    for var, value in values.items():
        name = operator(value)
        read = list(value.args) if isinstance(value, relax.Call) else [value]
        if name in _SIZED:
            # The indices only select elements, so the values that are read do not depend on them.
            yield _look_up(value, values, _depends(read.pop(1), depends))
        elif isinstance(value, relax.Call) and _is_unknown(value):
            yield _LookUp(_ALWAYS_LEGAL, None, _depends(value, depends), None)
        depends[var] = frozenset()
        if name not in _BOUNDED:
            depends[var] = frozenset().union(*(_depends(each, depends) for each in read))


def _is_unknown(call: Any) -> bool:
    """Whether a call may use integers that it reads as indices in a way not known here."""
    return operator(call) in _UNKNOWN and not callee(call).startswith(_OPAQUE_OF_NUMBERS)


def _depends(value: Any, depends: Mapping[Any, frozenset[Any]]) -> frozenset[Any]:
    sets = (depends.get(var, frozenset()) for var in variables(value))
    return frozenset().union(*sets)


def _look_up(call: Any, values: Mapping[Any, Any], depends: frozenset[Any]) -> _LookUp:
    sizes, index = _axis_sizes(call), call.args[1]
    is_exact = getattr(call.attrs, "mode", "fast") == "fast"
    is_wrapped = operator(call) == "scatter_elements"  # its kernel takes negative indices
    low = high = 0  # bounds of the constants that are added to the elements
    while index in values:
        value, name = values[index], operator(values[index])
        added = _added(value)
        if isinstance(value, relax.Var):
            index = value
        elif name in _SAME_ELEMENTS or (name in _PARTS and _has_one_element(value.args[0])):
            index = value.args[0]
        elif name == "concat" and len(_fields(value.args[0], values)) == 1:
            (index,) = _fields(value.args[0], values)
        elif added is not None:
            index, numbers = added
            low, high = low + int(numbers.min()), high + int(numbers.max())
        elif name == "astype" and _is_integer_cast(value):
            index = value.args[0]
            is_exact = is_exact and bool(np.can_cast(str(index.ty.dtype), str(value.ty.dtype)))
        elif _wraps(value, call.args[0], values):
            index, is_wrapped = value.args[2], True
        else:
            break
    legal = ((-sizes[0] if is_wrapped else 0) - low, sizes[0] - 1 - high) if sizes else (1, 0)
    is_sure = is_exact and len(sizes) == 1 and legal[0] <= 0 <= legal[1]  # drawn from 0 on
    return _LookUp(min(sizes, default=1) - high, index, depends, legal if is_sure else None)


def _has_one_element(tensor: Any) -> bool:
    sizes = fixed_sizes(tensor.ty)
    return sizes is not None and prod(sizes) == 1


def _added(value: Any) -> tuple[Any, Any] | None:
    """The integer that constants are added to, and the constants; None for any other value."""
    if operator(value) != "add":
        return None
    number, constant = value.args if is_constant(value.args[1]) else value.args[::-1]
    is_integer = is_constant(constant) and "int" in str(constant.ty.dtype)
    if not is_integer or not _has_one_element(number):
        return None
    numbers = constant.value.numpy()
    return (number, numbers) if numbers.size else None


def _fields(value: Any, values: Mapping[Any, Any]) -> list[Any]:
    """The fields of a tuple, or the value itself."""
    value = values.get(value, value)
    return list(value.fields) if isinstance(value, relax.Tuple) else [value]


def most_steps(
    source: SourceModel, pairs: Mapping[str, str], ranges: Mapping[str, Range]
) -> tuple[int, int] | None:
    """The most items of a stream, and how far each advances its counter; None if not known.

    The counter is a state in ``pairs`` that every item increases and that is an index, with a range
    in ``ranges``, of where the item writes into a cache.
    """
    main = source.module["main"]
    values = {binding.var: binding.value for binding in bindings(main)}
    results = dict(zip(source.outputs, _fields(main.body.body, values), strict=True))
    names, limits = _names(source), []
    first = {s.input: s.initial.item() for s in source.states if s.initial.size == 1}
    for name in pairs.keys() & ranges.keys():
        value: Any = results[pairs[name]]
        while value in values and isinstance(values[value], relax.Var):
            value = values[value]
        added = _added(values.get(value))
        increase = int(added[1].min()) if added and names.get(added[0]) == name else 0
        if increase > 0:
            steps = (ranges[name][1] - first.get(name, 0)) // increase + 1
            limits.append((steps, increase))
    return min(limits, default=None)


def _is_integer_cast(cast: Any) -> bool:
    return "int" in str(cast.args[0].ty.dtype) and str(cast.ty.dtype) in _WIDE_INTEGERS


def _wraps(value: Any, data: Any, values: Mapping[Any, Any]) -> bool:
    """Whether a value is ``where(x < 0, x + size of data, x)``, as importers write it."""
    if operator(value) != "where":
        return False
    condition: Any = values.get(value.args[0])
    total: Any = values.get(value.args[1])
    if operator(condition) != "less" or operator(total) != "add":
        return False
    zero = condition.args[1]
    if not is_constant(zero) or zero.value.numpy().any():
        return False
    size: Any = values.get(total.args[1])
    while operator(size) in ("astype", "shape_to_tensor", "strided_slice", "take"):
        size = values.get(size.args[0])
    is_size = operator(size) == "shape_of" and size.args[0].same_as(data)
    return is_size and all(each.args[0].same_as(value.args[2]) for each in (condition, total))


def _axis_sizes(call: Any) -> list[int]:
    """The sizes of the axes that the indices of a call look into; empty where unknown."""
    shape, indices = (fixed_sizes(operand.ty) for operand in call.args[:2])
    if shape is None or indices is None:
        return []
    if operator(call).endswith("_nd"):
        start = int(getattr(call.attrs, "batch_dims", 0))
        return shape[start : start + indices[-1]]
    return [prod(shape) if call.attrs.axis is None else shape[int(call.attrs.axis)]]
