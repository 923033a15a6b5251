"""The Relax call of one fused op, and the constants that it reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from autosplit.frontend.relax.expressions import is_constant


@dataclass(frozen=True)
class Call:
    """The Relax expression of one op: a call, or a constant that is an output of the model.

    ``reads`` says what each variable in it stands for: a tensor name, a constant or, for a tuple,
    a list of those. ``weights`` are the constants inside a composite, which are no arguments.
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
