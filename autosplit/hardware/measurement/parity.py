"""The comparison of outputs with those of a reference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from autosplit.hardware.measurement.results import Accuracy

Array = np.ndarray[Any, np.dtype[Any]]
Outputs = Mapping[str, Array]
TOLERANCE = {"float16": 1e-2, "bfloat16": 5e-2}
DEFAULT_TOLERANCE = 1e-4
_FILLING = 1e4  # masked places are filled with values at least this large, which would hide errors
_ROUNDING = 0.01  # the share of the tolerance that rounding of a right value takes
_SMALL = 100  # times its size is the scale of a small part, such as scores beside pixels
_FEW, _ENOUGH = 0.1, 16  # small parts may be few, and few values be small, by chance
_DIFFERENT = (np.inf, np.inf)


def tolerance_of(dtypes: Iterable[str]) -> float:
    """The relative error that a model may have by default, given by its coarsest element type."""
    return max((TOLERANCE.get(dtype, 0.0) for dtype in dtypes), default=0.0) or DEFAULT_TOLERANCE


def compare(
    outputs: Sequence[Outputs], expected: Sequence[Outputs], tolerance: float = DEFAULT_TOLERANCE
) -> Accuracy:
    """Compare outputs with the expected ones, item by item.

    Errors are relative to the largest value of the expected output, without equal fill values of
    masked places; those of a far smaller part, such as a channel, to a multiple of its size. Names,
    shapes, types and numbers of items must be equal, and NaN and infinities in the same places; no
    items at all count as unequal. Integers and booleans must be the same, except that 8-bit
    (quantised) integers may differ by a tolerance above ``DEFAULT_TOLERANCE``.
    """
    absolute = relative = 0.0
    equal = len(outputs) == len(expected) > 0
    for item, expected_item in zip(outputs, expected, strict=False):
        equal = equal and item.keys() == expected_item.keys()
        for name, array in expected_item.items():
            errors = _DIFFERENT
            if name in item:
                errors = _errors(np.asarray(item[name]), np.asarray(array), tolerance)
            absolute, relative = max(absolute, errors[0]), max(relative, errors[1])
    is_equal = equal and relative <= tolerance
    return Accuracy(is_equal, float(absolute), float(relative), len(outputs), tolerance)


def has_numbers(outputs: Outputs) -> bool:
    """Whether any value is finite; also true if there are no values at all."""
    arrays = [np.asarray(array).astype(np.float64) for array in outputs.values()]
    return not any(a.size for a in arrays) or any(np.isfinite(a).any() for a in arrays)


def _errors(output: Array, expected: Array, tolerance: float) -> tuple[float, float]:
    """The absolute and the relative error of one output."""
    if output.shape != expected.shape or output.dtype != expected.dtype:
        return _DIFFERENT
    if expected.dtype.kind not in "fV":  # numpy knows bfloat16 as a void type
        # As unsigned numbers: a difference of two signed integers may not fit their type.
        high, low = np.maximum(output, expected), np.minimum(output, expected)
        unsigned = f"u{output.dtype.itemsize}"
        error = float(np.max(high.view(unsigned) - low.view(unsigned), initial=0))
        is_quantised = expected.dtype.kind in "iu" and expected.dtype.itemsize == 1
        if is_quantised and tolerance > DEFAULT_TOLERANCE:
            return error, error / max(1.0, float(np.max(np.abs(expected.astype(int)), initial=0)))
        return error, np.inf if error else 0.0
    output, expected = output.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(expected)
    unlike = not np.array_equal(output[~finite], expected[~finite], equal_nan=True)
    if unlike or not np.isfinite(output[finite]).all():
        return _DIFFERENT
    errors = np.abs(np.subtract(output, expected, where=finite, out=np.zeros_like(expected)))
    error, sizes = float(errors.max(initial=0.0)), np.abs(expected)
    # Equal fillings set no scale. Those that differ by rounding, as scores do, count as the least.
    rounded = (sizes >= _FILLING) & (errors <= _ROUNDING * tolerance * sizes)
    finite &= ~rounded | (errors > 0)
    errors, sizes = np.where(rounded, 0.0, errors), np.where(rounded, _FILLING, sizes)
    scale = float(sizes[finite].max(initial=0.0))
    if not error or not scale or expected.size < _ENOUGH:
        return error, float(errors.max(initial=0.0)) / (scale or 1.0)
    sizes, axes = np.where(finite, sizes, scale), {*range(expected.ndim)}
    # Each number by itself, and all numbers at one place of an axis, such as a channel.
    parts = [(), *(tuple(axes - {axis}) for axis in axes)]
    return error, max(_relative(errors, sizes, scale, part) for part in parts)


def _relative(errors: Array, sizes: Array, scale: float, part: tuple[int, ...]) -> float:
    """The largest error relative to the scale of its part, all numbers along the axes ``part``."""
    largest = sizes.max(axis=part)
    usual = np.quantile(largest, _FEW, method="lower") or scale
    scales = _SMALL * np.clip(np.maximum(largest, usual), scale / _SMALL**2, scale / _SMALL)
    return float((errors.max(axis=part) / scales).max())
