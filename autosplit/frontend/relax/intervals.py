"""The values that an integer expression of a kernel can take.

Interval arithmetic (Moore 1966). A result is sound also where integers wrap round, because an
expression whose bounds do not fit its type is refused.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

from autosplit.errors import ModelError
from autosplit.extras import ir, tirx

Interval = tuple[int, int]


class Intervals:
    """The intervals of variables by what defines them, computed when they are asked for."""

    def __init__(self) -> None:
        self._definitions: dict[Any, Callable[[], Interval]] = {}
        self._known: dict[Any, Interval] = {}
        self._binary: Mapping[type, Callable[[Interval, Interval], Interval | None]] = _operators()

    def define(self, variable: Any, interval: Callable[[], Interval]) -> None:
        """Say how the interval of a variable is computed; a second definition widens the first."""
        first = self._definitions.get(variable)
        if first is None:
            self._definitions[variable] = interval
        else:
            self._definitions[variable] = lambda: hull(first(), interval())

    def of(self, expression: Any) -> Interval:
        """The interval of an integer expression; of a vector, that of all its elements.

        Raises ModelError where the arithmetic may overflow.
        """
        interval = self._known.get(expression)
        if interval is None:
            interval = self._known[expression] = self._computed(expression)
        return interval

    def _computed(self, expression: Any) -> Interval:
        whole_type = _whole_type(expression)
        interval: Interval | None = None
        if isinstance(expression, tirx.IntImm):
            interval = (int(expression.value), int(expression.value))
        elif isinstance(expression, ir.Var) and expression in self._definitions:
            interval = self._definitions[expression]()
        elif type(expression) in self._binary:
            a, b = self.of(expression.a), self.of(expression.b)
            interval = self._binary[type(expression)](a, b)
        elif isinstance(expression, tirx.Select):
            interval = hull(self.of(expression.true_value), self.of(expression.false_value))
        elif isinstance(expression, tirx.Cast | tirx.Broadcast) and _is_integer(expression.value):
            interval = self.of(expression.value)
        elif isinstance(expression, tirx.Ramp):
            last = (self.of(expression.lanes)[1] - 1) * max(map(abs, self.of(expression.stride)))
            low, high = self.of(expression.base)
            interval = (low - last, high + last)
        if interval is None:
            return whole_type
        if interval[0] < whole_type[0] or interval[1] > whole_type[1]:
            raise ModelError(
                "computes an index that may overflow; save the module before LegalizeOps"
            )
        return interval


def hull(a: Interval, b: Interval) -> Interval:
    """The least interval that holds two."""
    return min(a[0], b[0]), max(a[1], b[1])


def _is_integer(expression: Any) -> bool:
    return str(expression.ty.dtype).startswith(("int", "uint", "bool"))


def _whole_type(expression: Any) -> Interval:
    dtype = expression.ty.dtype
    if str(dtype).startswith("int"):
        return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
    return 0, (1 << dtype.bits) - 1


def _operators() -> Mapping[type, Callable[[Interval, Interval], Interval | None]]:
    """What becomes of two intervals; None where no bound is known."""

    def of_corners(combine: Callable[[int, int], int]) -> Callable[[Interval, Interval], Interval]:
        # Each is monotonic in either operand, so its extremes are at corners.
        def combined(a: Interval, b: Interval) -> Interval:
            corners = [combine(x, y) for x, y in product(a, b)]
            return min(corners), max(corners)

        return combined

    def quotient(a: Interval, b: Interval) -> Interval | None:
        return of_corners(lambda x, y: x // y)(a, b) if b[0] > 0 else None

    def remainder(a: Interval, b: Interval) -> Interval | None:
        return (0, b[1] - 1) if b[0] > 0 else None

    def truncated(
        operation: Callable[[Interval, Interval], Interval | None],
    ) -> Callable[[Interval, Interval], Interval | None]:
        # Rounding toward zero is rounding down where nothing is negative.
        return lambda a, b: operation(a, b) if a[0] >= 0 else None

    return {
        tirx.Add: of_corners(operator.add),
        tirx.Sub: of_corners(operator.sub),
        tirx.Mul: of_corners(operator.mul),
        tirx.Min: of_corners(min),
        tirx.Max: of_corners(max),
        tirx.FloorDiv: quotient,
        tirx.FloorMod: remainder,
        tirx.Div: truncated(quotient),
        tirx.Mod: truncated(remainder),
    }
