"""Elementary functions of 32-bit floats, written as arithmetic that can be vectorised.

Code that TVM compiles with LLVM calls the C library, one number at a time. The polynomials here
take a few instructions for a whole vector. Their errors are a few units in the last place; their
results for NaN, infinities and denormals are those of the C library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from operator import mul
from typing import Any

from autosplit.extras import tirx, tvm, tvm_ffi

Once = Callable[[Any], Any]

# log(2) in two parts, the first with few digits so that its multiples are exact (Cody and Waite,
# "Software Manual for the Elementary Functions", 1980).
_LOG2_HIGH, _LOG2_LOW = 0.693359375, -2.12194440e-4
# (exp(r) - 1 - r) / r^2 for |r| <= log(2)/2 (Moshier, "Cephes", expf).
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5)
# Below the first limit exp is zero, above the second it is infinite.
_EXP_LIMITS = (-104.0, 89.0)
# Adding this to a number below 2^22 leaves the nearest integer in the last bits.
_ROUNDING, _ROUNDING_BITS = 12582912.0, 0x4B400000
# Rational approximations of erf and tanh: odd numerator and even denominator, highest power first
# (Eigen, "MathFunctionsImpl.h"), and the argument from which the function rounds to 1.
_ERF = (
    (-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
     -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02),
    (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03,
     -1.42647390514189e-02),
    4.0,
)  # fmt: skip
_TANH = (
    (-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
     1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03),
    (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03),
    7.90531110763549805,
)  # fmt: skip
# (sinh(x) - x) / x^3 for |x| <= 1, by its Taylor series.
_SINH = (1 / math.factorial(9), 1 / math.factorial(7), 1 / math.factorial(5), 1 / math.factorial(3))
# TVM has lowering rules for these functions in 32 bits only.
_NOT_IN_HALF = frozenset(
    f"tirx.{function}"
    for function in ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "sinh")
)
# For |x| below this limit, tanh(x) and erf(x) are linear to the last place.
_TINY = 4e-4


def vectorize_math(function: Any) -> Any:
    """Rewrite exp, erf, tanh, sigmoid and powers of 32-bit floats in a PrimFunc as arithmetic.

    Functions that TVM cannot vectorise (cosh, sinh) use exp; those it lacks in 16 bits use 32 bits.
    """
    rules: dict[str, Callable[..., Any]] = {
        "tirx.exp": _exp,
        "tirx.erf": lambda once, x: _rational(once, x, _ERF, 2 / math.sqrt(math.pi)),
        "tirx.tanh": lambda once, x: _rational(once, x, _TANH, 1.0),
        "tirx.sigmoid": lambda once, x: _number(1) / (_number(1) + _exp(once, -x)),
        "tirx.pow": _power,
        "tirx.cosh": _cosh,
        "tirx.sinh": _sinh,
    }

    def replaced(call: Any) -> Any:
        name = str(getattr(call.op, "name", ""))
        rule = rules.get(name)
        if rule is None and name not in _NOT_IN_HALF:
            return call
        kind = str(call.ty.dtype)
        if kind == "float16" and name in _NOT_IN_HALF:
            (x,) = call.args
            wide = tirx.Cast("float32", x)
            result = sharing(rule, wide) if rule else tirx.call_intrin("float32", name, wide)
            return tirx.Cast("float16", result)
        return sharing(rule, *call.args) if rule and kind == "float32" else call

    return tvm_ffi.structural_map(function, (tvm.ir.Call, replaced))


def sharing(write: Callable[..., Any], *arguments: Any) -> Any:
    """The expression ``write(once, *arguments)``; ``once`` binds a value that is computed once."""
    shared: list[tuple[Any, Any]] = []

    def once(value: Any) -> Any:
        if isinstance(value, tirx.Var | tirx.FloatImm):
            return value
        shared.append((tirx.Var("value", value.ty), value))
        return shared[-1][0]

    expression = write(once, *arguments)
    for variable, value in reversed(shared):
        expression = tirx.Let(variable, value, expression)
    return expression


def _number(value: float) -> Any:
    return tirx.const(value, "float32")


def _polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """Evaluate a polynomial by Horner's scheme; the coefficient of the highest power is first."""
    result = _number(coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * x + _number(coefficient)
    return result


def _exp(once: Once, x: Any) -> Any:
    """exp(x) as 2^n * exp(r), where n is the integer nearest to x / log(2)."""
    x = once(x)
    low, high = map(_number, _EXP_LIMITS)
    # NaN fails both comparisons and is kept.
    x = once(tirx.Select(x < low, low, tirx.Select(x > high, high, x)))
    rounded = once(x * _number(1 / math.log(2)) + _number(_ROUNDING))
    n = rounded - _number(_ROUNDING)
    r = once(x - n * _number(_LOG2_HIGH) - n * _number(_LOG2_LOW))
    exponent = once(tirx.reinterpret("int32", rounded) - tirx.const(_ROUNDING_BITS, "int32"))
    # 2^n as two factors, since n may exceed the exponents of normal numbers.
    half = once(exponent >> 1)
    scaled = r * r * _polynomial(r, _EXP) + r + _number(1)
    return scaled * _power_of_two(half) * _power_of_two(exponent - half)


def _power_of_two(exponent: Any) -> Any:
    bits = (exponent + tirx.const(127, "int32")) << 23
    return tirx.reinterpret("float32", bits)


def _rational(
    once: Once, x: Any, approximation: tuple[Sequence[float], Sequence[float], float], slope: float
) -> Any:
    """Approximate an odd function that is ``slope`` * x near 0 and 1 or -1 beyond a limit."""
    above, below, limit = approximation
    high, low = _number(limit), _number(-limit)
    x = once(x)
    limited = once(tirx.Select(x > high, high, tirx.Select(x < low, low, x)))
    square = once(limited * limited)
    value = limited * _polynomial(square, above) / _polynomial(square, below)
    is_tiny = tirx.And(x < _number(_TINY), x > _number(-_TINY))
    return tirx.Select(is_tiny, x * _number(slope), value)


def _cosh(once: Once, x: Any) -> Any:
    # exp(x / 2) is finite wherever the result is.
    e = once(_exp(once, x * _number(0.5)))
    return e * _number(0.5) * e + _number(0.5) / e / e


def _sinh(once: Once, x: Any) -> Any:
    x = once(x)
    e = once(_exp(once, x * _number(0.5)))
    far = e * _number(0.5) * e - _number(0.5) / e / e
    # The exponentials nearly cancel each other near 0.
    is_near = tirx.And(x < _number(1), x > _number(-1))
    square = once(x * x)
    return tirx.Select(is_near, x * square * _polynomial(square, _SINH) + x, far)


def _power(once: Once, x: Any, exponent: Any) -> Any:
    """A power by square roots and products for small multiples of 1/4, else by the C library."""
    quarters = exponent.value * 4 if isinstance(exponent, tirx.FloatImm) else math.nan
    if quarters not in (1, 2, 3, 4, 6, 8, 12):
        return tirx.pow(x, exponent)
    whole, rest = divmod(int(quarters), 4)
    x = once(x)
    root = tirx.sqrt(x)
    roots = ((), (tirx.sqrt(root),), (root,), (root * tirx.sqrt(root),))
    return reduce(mul, (*[x] * whole, *roots[rest]))
