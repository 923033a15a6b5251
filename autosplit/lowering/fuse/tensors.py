"""What an op calls and reads, and its sizes: shapes, bytes, element types, arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from autosplit.errors import ModelError
from autosplit.extras import relax, s_tir, tvm
from autosplit.frontend.relax.expressions import fixed_sizes, is_constant
from autosplit.frontend.relax.main_function import bindings
from autosplit.frontend.source import SourceModel, marked


@dataclass(frozen=True)
class Call:
    """The Relax expression of one op: a call, or a constant that is an output of the model.

    ``reads`` maps each variable in it to its content: a tensor name, a constant or, for a tuple, a
    list of these. ``weights`` are the constants inside a composite, which are not arguments.
    """

    value: Any
    reads: Mapping[Any, Any]
    weights: tuple[Any, ...] = ()


def constants(call: Call) -> Iterator[Any]:
    """The constants an op reads, in order, repeats included."""
    stack = [call.value, *call.weights, *(v for v in call.reads.values() if not isinstance(v, str))]
    while stack:
        value = stack.pop()
        if isinstance(value, list):
            stack.extend(value)
        elif is_constant(value):
            yield value
        else:
            stack.extend(getattr(value, "args", getattr(value, "fields", ())))


def static_shape(name: str, kind: Any) -> tuple[int, ...]:
    """The shape of tensor ``name``, whose Relax type is ``kind``.

    Raises ModelError if it is not a tensor, or a tensor with a size that is not known.
    """
    sizes = fixed_sizes(kind) if isinstance(kind, relax.TensorType) else None
    if sizes is None:
        raise ModelError(
            f"tensor '{name}' has a shape known only at run time ({kind}); "
            "give static shapes by --shape, in Python by shapes"
        )
    return tuple(sizes)


def require_static(source: SourceModel) -> None:
    """Raise ModelError, naming the node, for a tensor whose size depends on values.

    All input sizes are known, so only an op such as NonZero, Compress or Range can leave a size
    unknown. A size that is an expression may still become a number once constants are folded.
    """
    is_open = False
    for binding in bindings(source.module["main"]):
        is_open = is_open or any(t.shape is None for t in tensor_types(binding.var.ty))
        # This variable may hold a part of a node's result: the next marked one identifies the node.
        index = marked(binding.var.name) if is_open else None
        if index is None:
            continue
        for node in source.nodes:
            if source.tensors[index] in node.outputs:
                raise ModelError(node.unknown_size)


def size_of(shape: tuple[int, ...], dtype: str) -> int:
    """The size of a dense tensor in bytes; an element takes a whole number of bytes."""
    kind = tvm.DataType(dtype)
    return prod(shape) * ((int(kind.bits) * int(kind.lanes) + 7) // 8)


def bytes_of(constants: Iterable[Any]) -> int:
    """The total bytes of some constants, each distinct constant counted once."""
    unique = dict.fromkeys(constants)
    return sum(size_of(tuple(map(int, c.value.shape)), str(c.value.dtype)) for c in unique)


def dtypes_of(function: Any) -> frozenset[str]:
    """The element types of all tensors that a Relax function binds."""
    return frozenset(str(t.dtype) for b in bindings(function) for t in tensor_types(b.var.ty))


def tensor_types(kind: Any) -> list[Any]:
    """The types of the tensors in a Relax type: itself, or the fields of a tuple."""
    fields = kind.fields if isinstance(kind, relax.TupleType) else (kind,)
    return [f for f in fields if isinstance(f, relax.TensorType)]


def flops_of(function: Any) -> float:
    """The floating-point operations of one call of a PrimFunc, 0 where TVM cannot tell."""
    try:
        return float(s_tir.analysis.estimate_tir_flops(tvm.IRModule({"main": function})))
    except (RuntimeError, ValueError, TypeError):
        return 0.0  # an external kernel, or one whose loops are not static
