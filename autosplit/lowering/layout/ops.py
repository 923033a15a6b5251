"""The rewriting of each op to channels last.

A rule gets the values of the pass, the name of the op and its call in the source. It returns the
new expression, or None where the op needs the layout of the source. ``order`` defines channels last
for tensors of any rank.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from autosplit.extras import relax, tvm
from autosplit.frontend.relax.expressions import is_constant, shape_of
from autosplit.lowering.layout.convolution import SOURCE_LAYOUTS
from autosplit.lowering.layout.order import pixel_axes, to_last

if TYPE_CHECKING:
    from autosplit.lowering.layout.channels_last import Values

# With so few channels an input keeps the source's layout: kernels load it number by number anyway.
_IMAGE_CHANNELS = 4
_ELEMENTWISE = frozenset({
    "abs", "add", "astype", "ceil", "clip", "cos", "divide", "equal", "erf", "exp", "floor",
    "greater", "greater_equal", "isnan", "less", "less_equal", "log", "logical_and",
    "logical_not", "maximum", "minimum", "multiply", "negative", "nn.gelu", "nn.gelu_tanh",
    "nn.leakyrelu", "nn.relu", "nn.silu", "nn.softplus", "power", "round", "rsqrt", "sigmoid",
    "sign", "sin", "sqrt", "square", "subtract", "tanh", "where",
})  # fmt: skip
_REDUCTIONS = frozenset({"max", "mean", "min", "sum"})
_POOLS = frozenset({
    "nn.adaptive_avg_pool2d", "nn.avg_pool1d", "nn.avg_pool2d", "nn.max_pool1d", "nn.max_pool2d",
})  # fmt: skip


class SourceLayout(NamedTuple):
    """The result of a rule that is the same in both layouts."""

    value: Any


def has_few_channels(data: Any) -> bool:
    """Whether an input has so few channels that it is read in the layout of the source."""
    return shape_of(data)[1] <= _IMAGE_CHANNELS


def _elementwise(values: Values, _: str, call: Any) -> Any:
    operands = [values.operand(a, len(call.ty.shape)) for a in call.args]
    if any(operand is None for operand in operands):
        return None
    return relax.Call(call.op, operands, call.attrs, call.ty_args)


def _quantize(values: Values, _: str, call: Any) -> Any:
    data, *parameters = call.args
    if any(not is_constant(p) or prod(shape_of(p)) != 1 for p in parameters):
        # Parameters that differ along an axis, as those of weights do.
        return None
    operand = values.operand(data, len(call.ty.shape))
    return relax.Call(call.op, [operand, *parameters], call.attrs, call.ty_args)


def _convolution(values: Values, name: str, call: Any) -> Any:
    data, weight = call.args
    rank = len(shape_of(data))
    source, last = _layouts(rank)
    is_image = data not in values.last and has_few_channels(data) and "transpose" not in name
    operand = values.mutator.visit_expr(data) if is_image else values.operand(data, rank)
    layout = source if is_image else last
    return _with_attributes(call, [operand, weight], data_layout=layout, out_layout=last)


def _pool(values: Values, _: str, call: Any) -> Any:
    attrs, rank = call.attrs, len(call.ty.shape)
    source, last = _layouts(rank)
    if str(attrs.layout) != source or str(attrs.out_layout) not in ("", source):
        return None
    data = values.operand(call.args[0], rank)
    return _with_attributes(call, [data], layout=last, out_layout=last)


def _layouts(rank: int) -> tuple[str, str]:
    """TVM's names of the layout of the source and of channels last."""
    return ("NCW", "NWC") if rank == 3 else ("NCHW", "NHWC")


def _with_attributes(call: Any, operands: list[Any], **changed: str) -> Any:
    """The call on other operands, with some attributes changed."""
    kind = type(call.attrs).__tvm_ffi_type_info__
    attributes = {field.name: getattr(call.attrs, field.name) for field in kind.fields}
    attrs = tvm.ir.make_node(kind.type_key, **attributes | changed)
    return relax.Call(call.op, operands, attrs, call.ty_args)


def _avg_pool3d(values: Values, _: str, call: Any) -> Any:
    """The mean over neighbouring channels in a local response normalisation."""
    data, attrs = values.operand(call.args[0], 5), call.attrs
    size, *others = (int(s) for s in attrs.pool_size)
    padding = [int(p) for p in attrs.padding]
    batch, height, width, one, channels = shape_of(data)
    plain = {*others, *map(int, attrs.strides), *map(int, attrs.dilation)} == {1}
    if one != 1 or not plain or any(padding[i] for i in (1, 2, 4, 5)):
        return None
    rows = values.builder.emit(relax.op.reshape(data, [batch, height * width, 1, channels]))
    pooled = relax.op.nn.avg_pool2d(
        rows,
        [1, size],
        padding=[0, padding[0], 0, padding[3]],
        count_include_pad=bool(attrs.count_include_pad),
    )
    sizes = shape_of(call)
    return relax.op.reshape(values.builder.emit(pooled), [sizes[axis] for axis in to_last(5)])


def _reduction(values: Values, name: str, call: Any) -> Any:
    rank = len(call.args[0].ty.shape)
    reduce, data = getattr(relax.op, name), values.operand(call.args[0], rank)
    axes = [int(a) % rank for a in call.attrs.axis or range(rank)]
    axes_in_memory = sorted(to_last(rank).index(axis) for axis in axes)
    if call.attrs.keepdims:
        return reduce(data, axes_in_memory, True)
    if not set(pixel_axes(rank)) <= set(axes):
        return None
    # Without the axes of pixels, both layouts are the same.
    return SourceLayout(reduce(data, axes_in_memory))


def _concat(values: Values, _: str, call: Any) -> Any:
    fields = getattr(values.tuples.get(call.args[0], call.args[0]), "fields", None)
    if fields is None:
        return None
    rank = len(call.ty.shape)
    operands = [values.operand(field, rank) for field in fields]
    if any(operand is None for operand in operands):
        return None
    return relax.op.concat(operands, to_last(rank).index(int(call.attrs.axis) % rank))


def _split(values: Values, _: str, call: Any) -> Any:
    rank = len(call.args[0].ty.shape)
    sections = call.attrs.indices_or_sections
    parts = int(sections) if hasattr(sections, "value") else [int(i) for i in sections]
    axis = to_last(rank).index(int(call.attrs.axis) % rank)
    return relax.op.split(values.operand(call.args[0], rank), parts, axis)


def _reshape(values: Values, _: str, call: Any) -> Any:
    before, after = shape_of(call.args[0]), shape_of(call)
    data = values.operand(call.args[0], len(before))
    pixels = prod(before[axis] for axis in pixel_axes(len(before)))
    if pixels == 1:
        return SourceLayout(relax.op.reshape(data, after))
    if len(after) < 3 or before[0] != after[0]:
        return None
    if pixels != prod(after[axis] for axis in pixel_axes(len(after))):
        return None
    return relax.op.reshape(data, [after[axis] for axis in to_last(len(after))])


def _permute_dims(values: Values, _: str, call: Any) -> Any:
    rank = len(call.ty.shape)
    axes = [int(a) % rank for a in call.attrs.axes or reversed(range(rank))]
    data = values.operand(call.args[0], rank)
    if axes == to_last(rank):
        # The source permutes to the order that memory has already.
        return SourceLayout(relax.op.reshape(data, shape_of(call)))
    pixels = pixel_axes(rank)
    if axes[0] != 0 or axes[-len(pixels) :] != pixels:
        return None
    axes_in_memory = [to_last(rank).index(axes[axis]) for axis in to_last(rank)]
    return relax.op.permute_dims(data, axes_in_memory)


def _resize2d(values: Values, _: str, call: Any) -> Any:
    data, size = call.args
    if str(call.attrs.layout) != "NCHW":
        return None
    return _with_attributes(call, [values.operand(data, 4), size], layout="NHWC")


RULES: dict[str, Callable[[Values, str, Any], Any]] = {
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    **dict.fromkeys(_POOLS, _pool),
    **dict.fromkeys(_REDUCTIONS, _reduction),
    **dict.fromkeys(SOURCE_LAYOUTS, _convolution),
    "concat": _concat,
    "dequantize": _quantize,
    "expand_dims": _reshape,
    "image.resize2d": _resize2d,
    "nn.avg_pool3d": _avg_pool3d,
    "permute_dims": _permute_dims,
    "quantize": _quantize,
    "reshape": _reshape,
    "split": _split,
    "squeeze": _reshape,
}
