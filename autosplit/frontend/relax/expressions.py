"""Queries on Relax expressions: constants, variables, tuples, sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from autosplit.errors import ModelError
from autosplit.extras import relax, tvm


def is_constant(value: Any) -> bool:
    """Whether an expression is a constant."""
    return isinstance(value, tvm.ir.GenericConst)


def shape_of(expression: Any) -> tuple[int, ...]:
    """The shape of an expression whose sizes are all numbers."""
    return tuple(map(int, expression.ty.shape))


def fixed_sizes(kind: Any) -> list[int] | None:
    """The sizes of a tensor type or a shape, None unless all are numbers."""
    shape = kind if isinstance(kind, relax.ShapeExpr) else getattr(kind, "shape", None)
    sizes = getattr(shape, "values", None)
    if sizes is None or not all(hasattr(size, "value") for size in sizes):
        return None
    return [int(size.value) for size in sizes]


def variables(value: Any) -> list[Any]:
    """The variables an expression reads, in order."""
    return list(relax.analysis.free_vars(value))


def operator(value: Any) -> str:
    """The operator that an expression calls, without "relax."; empty where it calls none."""
    return str(getattr(getattr(value, "op", None), "name", "")).removeprefix("relax.")


def callee(call: Any) -> str:
    """The name of what a call runs: a kernel, a symbol, an operator or a function."""
    is_operator = isinstance(call.op, tvm.ir.Op)
    if is_operator and not call.op.name.startswith("relax.call_"):
        return str(call.op.name)
    function = call.args[0] if is_operator else call.op
    is_symbol = isinstance(function, relax.ExternFunc)
    return str(function.global_symbol if is_symbol else function.name_hint)


def resolve(value: Any, contents: Mapping[Any, Any], other: Callable[[Any], Any]) -> Any:
    """The content of an expression that computes nothing; the content of a tuple is a list.

    ``contents`` has the contents of variables; ``other`` returns those of all other expressions.
    Raises ModelError for an item that its tuple does not have.
    """
    if isinstance(value, relax.Tuple):
        return [resolve(field, contents, other) for field in value.fields]
    if isinstance(value, relax.TupleGetItem):
        items = resolve(value.tuple_value, contents, other)
        if not isinstance(items, list):
            return other(value)
        if not 0 <= value.index < len(items):
            raise ModelError(
                f"index {value.index} is outside a tuple of {len(items)}; the module is damaged"
            )
        return items[value.index]
    is_known = isinstance(value, relax.Var) and value in contents
    return contents[value] if is_known else other(value)


def flat(content: Any) -> Iterator[Any]:
    """Yield the items of nested lists, or the content itself if it is no list; omit None."""
    if isinstance(content, list):
        for item in content:
            yield from flat(item)
    elif content is not None:
        yield content
