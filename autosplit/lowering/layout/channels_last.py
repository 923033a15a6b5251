"""Channels last: convolutions and the ops between them with the channels as innermost axis.

A vector register then holds neighbouring channels of one pixel, whatever the width of an image.
The pass walks ``main`` once and follows the layout from the convolutions on. A variable may exist
in the layout of the source, with channels last, or in both; a permutation is emitted where an op
needs the missing layout. The inputs and outputs of a stage have the layout of the source.

``ops`` has the rewriting of each op, ``order`` the order of axes for tensors of any rank.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autosplit.extras import relax
from autosplit.frontend.relax.expressions import is_constant, operator, shape_of, variables
from autosplit.frontend.relax.main_function import bindings, rebind, with_bindings, with_main
from autosplit.lowering.layout.convolution import SOURCE_LAYOUTS, can_pack
from autosplit.lowering.layout.ops import RULES, SourceLayout, has_few_channels
from autosplit.lowering.layout.order import SUFFIX, to_last, to_source


def channels_last(module: Any) -> Any:
    """Convert the convolutions of ``main``, and the ops that follow them, to channels last."""
    main = module["main"]
    values = Values()
    for param in _wide_inputs(main):
        shape = shape_of(param)
        memory = relax.TensorType([shape[axis] for axis in to_last(len(shape))], param.ty.dtype)
        values.last[param] = relax.Var(f"{param.name}{SUFFIX}", memory)
    converted = with_bindings(module, values.convert)
    params = [values.last.get(param, param) for param in main.params]
    body = converted["main"].body
    return with_main(converted, relax.Function(params, body, attrs=main.attrs))


def _wide_inputs(main: Any) -> list[Any]:
    """The inputs of ``main`` that a convolution reads with channels last."""
    read = set()
    for binding in bindings(main):
        if can_pack(binding.value) and not has_few_channels(binding.value.args[0]):
            read.add(binding.value.args[0])
    return [param for param in main.params if param in read]


class Values:
    """Converts each binding of ``main``; the ``builder`` of a ``mutator`` emits the new ones.

    ``last`` maps a variable of the old ``main`` to its value with channels last, or to a tuple of
    such values. ``tuples`` maps a variable to the tuple of old variables that it is bound to.
    ``restored`` are the variables that exist in the layout of the source too.
    """

    mutator: Any
    builder: Any

    def __init__(self) -> None:
        self.last: dict[Any, Any] = {}
        self.tuples: dict[Any, Any] = {}
        self.restored: set[Any] = set()

    def convert(self, mutator: Any, binding: Any) -> bool:
        """Emit a binding with channels last; return False if that is impossible or of no use."""
        self.mutator, self.builder = mutator, mutator.builder_
        if self._emit_last(binding.var, binding.value):
            return True
        for var in variables(binding.value):
            self.restore(var)
        return False

    def _emit_last(self, var: Any, value: Any) -> bool:
        if isinstance(value, relax.Tuple) and any(v in self.last for v in variables(value)):
            self._tuple(var, value)
            return True
        if isinstance(value, relax.Var) and value in self.last:
            result = self.last[value]
        elif isinstance(value, relax.TupleGetItem) and value.tuple_value in self.last:
            result = relax.TupleGetItem(self.last[value.tuple_value], value.index)
        else:
            name = operator(value)
            applies = name in RULES and self._applies(name, value)
            result = RULES[name](self, name, value) if applies else None
        if isinstance(result, SourceLayout):
            rebind(self.mutator, var, result.value)
            return True
        if result is None:
            return False
        self.last[var] = rebind(self.mutator, var, result, f"{var.name}{SUFFIX}")
        return True

    def restore(self, var: Any) -> None:
        """Emit a variable in the layout of the source too."""
        if var in self.restored or var not in {**self.last, **self.tuples}:
            return
        self.restored.add(var)
        value = self.last.get(var)
        if value is None:
            for field in variables(self.tuples[var]):
                self.restore(field)
            restored = self.mutator.visit_expr(self.tuples[var])
        elif isinstance(value.ty, relax.TupleType):
            items = [relax.TupleGetItem(value, i) for i in range(len(value.ty.fields))]
            fields = [self._permuted(self.builder.emit(item), to_source) for item in items]
            restored = relax.Tuple(fields)
        else:
            restored = self._permuted(value, to_source)
        self.mutator.set_var_remap(var, self.builder.emit(restored))

    def _tuple(self, var: Any, value: Any) -> None:
        """Record a tuple, which is built where it is read, in the layout that its reader needs."""
        self.tuples[var] = value
        if not isinstance(var, relax.DataflowVar):
            # The result of ``main``.
            fields = [
                self.last[field] if field in self.last else self.mutator.visit_expr(field)
                for field in value.fields
            ]
            rebind(self.mutator, var, relax.Tuple(fields))

    def _applies(self, name: str, call: Any) -> bool:
        if name in SOURCE_LAYOUTS:
            return can_pack(call)
        read = set(variables(call))
        for var in read.intersection(self.tuples):
            read.update(variables(self.tuples[var]))
        return not read.isdisjoint(self.last)

    def operand(self, expression: Any, rank: int) -> Any:
        """An operand with channels last, None where that is impossible.

        An operand of lower rank gets leading axes of size 1, as in numpy's broadcasting.
        """
        if is_constant(expression):
            array = expression.value.numpy()
            if array.ndim == 0:
                return expression
            array = array.reshape((1,) * (rank - array.ndim) + array.shape)
            array = np.ascontiguousarray(array.transpose(to_last(rank)))
            return relax.const(array, str(array.dtype))
        if not isinstance(expression, relax.Var):
            # An argument that is a number, such as a bound of clip.
            return None if isinstance(expression, relax.Tuple) else expression
        sizes = getattr(expression.ty, "shape", None)
        if sizes is None or len(sizes) not in (0, rank):
            return None
        if expression in self.last:
            return self.last[expression]
        value = self.mutator.visit_expr(expression)
        return value if not len(sizes) else self._permuted(value, to_last)

    def _permuted(self, value: Any, order: Callable[[int], list[int]]) -> Any:
        shape = shape_of(value)
        axes = order(len(shape))
        # A tensor of one pixel or one channel is the same in both layouts.
        moving = [axis for axis in axes if shape[axis] != 1]
        if moving == sorted(moving):
            return self.builder.emit(relax.op.reshape(value, [shape[axis] for axis in axes]))
        return self.builder.emit(relax.op.permute_dims(value, axes))
