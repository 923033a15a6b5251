"""Channels last: convolutions, and what lies between them, with the channels as innermost axis.

A vector register then holds neighbouring channels of one pixel, whatever the width of an image.
The pass walks ``main`` once and follows the layout from the convolutions on. A variable may exist
as the source has it, with channels last, or both; a permutation is emitted where an op needs the
layout that is missing. So do the inputs and outputs of ``main``; a stage gets and returns them as
the source has them.

``order`` says what channels last is of a tensor of any rank.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from autosplit.frontend.relax.main_function import bindings, rebind, with_main
from autosplit.lowering.fuse.flat_calls import variables
from autosplit.lowering.fuse.tensors import is_constant
from autosplit.lowering.layout.convolution import can_pack
from autosplit.lowering.layout.order import SUFFIX, to_last, to_source

# An input of so few channels is read as it lies: a kernel loads it number by number anyway.
_IMAGE_CHANNELS = 4
_ELEMENTWISE = frozenset({
    "abs", "add", "astype", "ceil", "clip", "cos", "divide", "equal", "erf", "exp", "floor",
    "greater", "greater_equal", "isnan", "less", "less_equal", "log", "logical_and",
    "logical_not", "maximum", "minimum", "multiply", "negative", "nn.gelu", "nn.gelu_tanh",
    "nn.leakyrelu", "nn.relu", "nn.silu", "nn.softplus", "power", "round", "rsqrt", "sigmoid",
    "sign", "sin", "sqrt", "square", "subtract", "tanh", "where",
})  # fmt: skip
_REDUCTIONS = frozenset({"max", "mean", "min", "sum"})
_POOLS = frozenset({"nn.adaptive_avg_pool2d", "nn.avg_pool2d", "nn.max_pool2d"})


def channels_last(module: Any) -> Any:
    """The module with the convolutions of ``main`` and what follows them with channels last."""
    from tvm import relax

    @relax.expr_functor.mutator
    class Convert(relax.PyExprMutator):  # type: ignore[misc]
        def __init__(self, mod: Any) -> None:
            super().__init__(mod)
            self.rules = _Rules(self)

        def visit_var_binding_(self, binding: Any) -> None:
            if not self.rules.convert(binding):
                for var in variables(binding.value):
                    self.rules.restore(var)
                super().visit_var_binding_(binding)

    main = module["main"]
    convert = Convert(module)
    for param in _wide_inputs(main):
        shape = shape_of(param)
        memory = relax.TensorType([shape[axis] for axis in to_last(len(shape))], param.ty.dtype)
        convert.rules.last[param] = relax.Var(f"{param.name}{SUFFIX}", memory)
    body = convert.visit_expr(main).body
    params = [convert.rules.last.get(param, param) for param in main.params]
    return with_main(module, relax.Function(params, body, attrs=main.attrs))


def _wide_inputs(main: Any) -> list[Any]:
    """The inputs of ``main`` that a convolution reads with channels last."""
    read = set()
    for binding in bindings(main):
        value: Any = getattr(binding, "value", None)
        is_conv = getattr(getattr(value, "op", None), "name", "") == "relax.nn.conv2d"
        if is_conv and can_pack(value) and shape_of(value.args[0])[1] > _IMAGE_CHANNELS:
            read.add(value.args[0])
    return [param for param in main.params if param in read]


def shape_of(expression: Any) -> tuple[int, ...]:
    """The static shape of a Relax expression."""
    return tuple(int(size) for size in expression.ty.shape)


class _Rules:
    """What becomes of each binding; ``mutator`` emits the new ones.

    ``last`` maps a variable of the old ``main`` to its value with channels last, or to a tuple of
    such values. ``tuples`` maps a variable to the tuple it is of variables of the old ``main``.
    ``restored`` are the variables that exist in the layout of the source too.
    """

    def __init__(self, mutator: Any) -> None:
        self.mutator = mutator
        self.builder = mutator.builder_
        self.last: dict[Any, Any] = {}
        self.tuples: dict[Any, Any] = {}
        self.restored: set[Any] = set()

    def convert(self, binding: Any) -> bool:
        """Emit a binding with channels last, if that is possible and of use."""
        from tvm import relax

        var, value = binding.var, binding.value
        if isinstance(value, relax.Tuple) and any(v in self.last for v in variables(value)):
            self._tuple(var, value)
            return True
        if isinstance(value, relax.Var) and value in self.last:
            result = self.last[value]
        elif isinstance(value, relax.TupleGetItem) and value.tuple_value in self.last:
            result = relax.TupleGetItem(self.last[value.tuple_value], value.index)
        elif isinstance(value, relax.Call) and hasattr(value.op, "name"):
            name = value.op.name.removeprefix("relax.")
            rule = self._rule(name)
            result = rule(self, name, value) if rule and self._applies(name, value) else None
            if isinstance(result, _SourceLayout):
                rebind(self.mutator, var, result.value, var.name)
                return True
        else:
            result = None
        if result is None:
            return False
        result = self.builder.normalize(result)
        kind = relax.DataflowVar if isinstance(var, relax.DataflowVar) else relax.Var
        new = kind(f"{var.name}{SUFFIX}", result.ty)
        self.builder.emit_normalized(relax.VarBinding(new, result))
        self.last[var] = new
        if kind is relax.Var:
            # The result of ``main`` refers to it.
            self.mutator.set_var_remap(var, new)
        return True

    def restore(self, var: Any) -> None:
        """Have a variable in the layout of the source too."""
        from tvm import relax

        if var in self.restored or var not in {**self.last, **self.tuples}:
            return
        self.restored.add(var)
        if var in self.tuples:
            for field in variables(self.tuples[var]):
                self.restore(field)
            new = self.builder.emit(self.mutator.visit_expr(self.tuples[var]))
            self.mutator.set_var_remap(var, new)
            return
        value = self.last[var]
        if isinstance(value.ty, relax.TupleType):
            fields = [relax.TupleGetItem(value, i) for i in range(len(value.ty.fields))]
            fields = [self.builder.emit(field) for field in fields]
            permuted: Any = relax.Tuple([self._permuted(f, to_source) for f in fields])
        else:
            permuted = self._permuted(value, to_source)
        new = self.builder.emit(permuted)
        self.mutator.set_var_remap(var, new)

    def _tuple(self, var: Any, value: Any) -> None:
        """A tuple is made where it is read, in the layout that its reader needs."""
        from tvm import relax

        self.tuples[var] = value
        if not isinstance(var, relax.DataflowVar):
            # The result of ``main``.
            fields = [
                self.last[field] if field in self.last else self.mutator.visit_expr(field)
                for field in value.fields
            ]
            rebind(self.mutator, var, relax.Tuple(fields), var.name)

    def _rule(self, name: str) -> Callable[..., Any] | None:
        if name in _ELEMENTWISE:
            return _Rules._elementwise
        if name in _POOLS:
            return _Rules._pool
        return _Rules._reduction if name in _REDUCTIONS else _RULES.get(name)

    def _applies(self, name: str, call: Any) -> bool:
        if name == "nn.conv2d":
            return can_pack(call)
        read = set(variables(call))
        for var in read.intersection(self.tuples):
            read.update(variables(self.tuples[var]))
        return not read.isdisjoint(self.last)

    def _of(self, expression: Any, rank: int) -> Any:
        """An operand with channels last, None where it cannot be had.

        One of a lower rank is taken as numpy broadcasts it.
        """
        from tvm import relax

        if is_constant(expression):
            array = expression.value.numpy()
            if array.ndim == 0:
                return expression
            array = array.reshape((1,) * (rank - array.ndim) + array.shape)
            return relax.const(np.ascontiguousarray(array.transpose(to_last(rank))))
        if not isinstance(expression, relax.Var):
            # A number among the arguments, as of clip.
            return None if isinstance(expression, relax.Tuple) else expression
        if expression in self.last:
            return self.last[expression]
        sizes = getattr(expression.ty, "shape", None)
        if sizes is None or len(sizes) not in (0, rank):
            return None
        value = self.mutator.visit_expr(expression)
        return value if not len(sizes) else self._permuted(value, to_last)

    def _permuted(self, value: Any, order: Callable[[int], list[int]]) -> Any:
        from tvm import relax

        shape = shape_of(value)
        axes = order(len(shape))
        # A tensor of one pixel or one channel is the same in both layouts.
        moving = [axis for axis in axes if shape[axis] != 1]
        if moving == sorted(moving):
            return self.builder.emit(relax.op.reshape(value, [shape[axis] for axis in axes]))
        return self.builder.emit(relax.op.permute_dims(value, axes))

    def _elementwise(self, _: str, call: Any) -> Any:
        from tvm import relax

        operands = [self._of(a, len(call.ty.shape)) for a in call.args]
        if any(operand is None for operand in operands):
            return None
        return relax.Call(call.op, operands, call.attrs, call.ty_args)

    def _quantize(self, _: str, call: Any) -> Any:
        from tvm import relax

        data, *parameters = call.args
        if any(not is_constant(p) or prod(shape_of(p)) != 1 for p in parameters):
            # They differ along an axis, as those of weights do.
            return None
        operand = self._of(data, len(call.ty.shape))
        return relax.Call(call.op, [operand, *parameters], call.attrs, call.ty_args)

    def _conv2d(self, _: str, call: Any) -> Any:
        from tvm import relax

        attrs = call.attrs
        data, weight = call.args
        is_image = data not in self.last and shape_of(data)[1] <= _IMAGE_CHANNELS
        return relax.op.nn.conv2d(
            self.mutator.visit_expr(data) if is_image else self._of(data, 4),
            weight,
            list(attrs.strides),
            list(attrs.padding),
            list(attrs.dilation),
            int(attrs.groups),
            "NCHW" if is_image else "NHWC",
            "OIHW",
            "NHWC",
            attrs.out_dtype,
        )

    def _pool(self, name: str, call: Any) -> Any:
        from tvm import relax

        if str(call.attrs.layout) != "NCHW" or str(call.attrs.out_layout) not in ("", "NCHW"):
            return None
        data, attrs = self._of(call.args[0], 4), call.attrs
        if name == "nn.adaptive_avg_pool2d":
            return relax.op.nn.adaptive_avg_pool2d(data, list(attrs.output_size), "NHWC")
        pool = relax.op.nn.max_pool2d if name == "nn.max_pool2d" else relax.op.nn.avg_pool2d
        return pool(
            data,
            list(attrs.pool_size),
            list(attrs.strides),
            list(attrs.padding),
            list(attrs.dilation),
            bool(attrs.ceil_mode),
            bool(attrs.count_include_pad),
            "NHWC",
        )

    def _avg_pool3d(self, _: str, call: Any) -> Any:
        """The mean over neighbouring channels in a local response normalisation."""
        from tvm import relax

        data, attrs = self._of(call.args[0], 5), call.attrs
        size, *others = (int(s) for s in attrs.pool_size)
        padding = [int(p) for p in attrs.padding]
        batch, height, width, one, channels = shape_of(data)
        plain = {*others, *map(int, attrs.strides), *map(int, attrs.dilation)} == {1}
        if one != 1 or not plain or any(padding[i] for i in (1, 2, 4, 5)):
            return None
        rows = self.builder.emit(relax.op.reshape(data, [batch, height * width, 1, channels]))
        pooled = relax.op.nn.avg_pool2d(
            rows,
            [1, size],
            padding=[0, padding[0], 0, padding[3]],
            count_include_pad=bool(attrs.count_include_pad),
        )
        return relax.op.reshape(self.builder.emit(pooled), shape_of(data))

    def _reduction(self, name: str, call: Any) -> Any:
        from tvm import relax

        rank = len(call.args[0].ty.shape)
        reduce, data = getattr(relax.op, name), self._of(call.args[0], rank)
        axes = [int(a) % rank for a in call.attrs.axis or range(rank)]
        axes_in_memory = sorted(to_last(rank).index(axis) for axis in axes)
        if call.attrs.keepdims:
            return reduce(data, axes_in_memory, True)
        if not {rank - 2, rank - 1} <= set(axes):
            return None
        # Without the pixels nothing is left whose order a layout could change.
        return _SourceLayout(reduce(data, axes_in_memory))

    def _concat(self, _: str, call: Any) -> Any:
        from tvm import relax

        fields = getattr(self.tuples.get(call.args[0], call.args[0]), "fields", None)
        if fields is None:
            return None
        rank = len(call.ty.shape)
        operands = [self._of(field, rank) for field in fields]
        if any(operand is None for operand in operands):
            return None
        return relax.op.concat(operands, to_last(rank).index(int(call.attrs.axis) % rank))

    def _split(self, _: str, call: Any) -> Any:
        from tvm import relax

        rank = len(call.args[0].ty.shape)
        sections = call.attrs.indices_or_sections
        parts = int(sections) if hasattr(sections, "value") else [int(i) for i in sections]
        axis = to_last(rank).index(int(call.attrs.axis) % rank)
        return relax.op.split(self._of(call.args[0], rank), parts, axis)

    def _reshape(self, _: str, call: Any) -> Any:
        from tvm import relax

        before, after = shape_of(call.args[0]), shape_of(call)
        data = self._of(call.args[0], len(before))
        if before[-2:] == (1, 1):
            return _SourceLayout(relax.op.reshape(data, after))
        if len(after) < 4 or (before[0], *before[-2:]) != (after[0], *after[-2:]):
            return None
        return relax.op.reshape(data, [after[axis] for axis in to_last(len(after))])

    def _permute_dims(self, _: str, call: Any) -> Any:
        from tvm import relax

        rank = len(call.ty.shape)
        axes = [int(a) % rank for a in call.attrs.axes or reversed(range(rank))]
        if axes[0] != 0 or axes[-2:] != [rank - 2, rank - 1]:
            return None
        axes_in_memory = [to_last(rank).index(axes[axis]) for axis in to_last(rank)]
        return relax.op.permute_dims(self._of(call.args[0], rank), axes_in_memory)

    def _resize2d(self, _: str, call: Any) -> Any:
        from tvm import relax

        attrs = call.attrs
        if str(attrs.layout) != "NCHW":
            return None
        return relax.op.image.resize2d(
            self._of(call.args[0], 4),
            call.args[1],
            roi=[float(r) for r in attrs.roi],
            layout="NHWC",
            method=attrs.method,
            coordinate_transformation_mode=attrs.coordinate_transformation_mode,
            rounding_method=attrs.rounding_method,
            cubic_alpha=float(attrs.cubic_alpha),
            cubic_exclude=int(attrs.cubic_exclude),
            extrapolation_value=float(attrs.extrapolation_value),
            out_dtype=attrs.out_dtype,
        )


class _SourceLayout:
    """The result of a rule that is the same in both layouts."""

    def __init__(self, value: Any) -> None:
        self.value = value


_RULES: dict[str, Callable[..., Any]] = {
    "concat": _Rules._concat,
    "dequantize": _Rules._quantize,
    "expand_dims": _Rules._reshape,
    "image.resize2d": _Rules._resize2d,
    "nn.avg_pool3d": _Rules._avg_pool3d,
    "nn.conv2d": _Rules._conv2d,
    "quantize": _Rules._quantize,
    "permute_dims": _Rules._permute_dims,
    "reshape": _Rules._reshape,
    "split": _Rules._split,
    "squeeze": _Rules._reshape,
}
