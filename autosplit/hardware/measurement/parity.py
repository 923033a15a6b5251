"""The comparison of outputs with those of a reference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from autosplit.errors import StageError
from autosplit.hardware.measurement.results import Accuracy

Array = np.ndarray[Any, np.dtype[Any]]
TOLERANCE = {"float16": 1e-2, "bfloat16": 5e-2}
DEFAULT_TOLERANCE = 1e-4
_DIFFERENT = (np.inf, np.inf, False)


def compare(
    outputs: Sequence[Mapping[str, Array]],
    expected: Sequence[Mapping[str, Array]],
    kinds: Iterable[str] = (),
) -> Accuracy:
    """Compare outputs with the expected ones, item by item.

    Errors are relative to the largest value of the expected output. Outputs are equal within the
    largest tolerance of their own element type and of ``kinds``, those that the model computes in.
    Integers and booleans are equal to the bit. NaN and infinities must be where they are expected.
    Names, shapes and numbers must be equal, and no items at all are not equal.
    """
    absolute = relative = 0.0
    tolerance = max(map(_tolerance, kinds), default=DEFAULT_TOLERANCE)
    equal = len(outputs) == len(expected) > 0
    for item, expected_item in zip(outputs, expected, strict=False):
        equal = equal and item.keys() == expected_item.keys()
        for name, array in expected_item.items():
            errors = _DIFFERENT
            if name in item:
                errors = _errors(np.asarray(item[name]), np.asarray(array), tolerance)
            absolute, relative = max(absolute, errors[0]), max(relative, errors[1])
            equal = equal and errors[2]
    return Accuracy(equal, float(absolute), float(relative), len(outputs))


def require_equal(accuracy: Accuracy) -> Accuracy:
    """The accuracy of equal outputs. Raises StageError with the errors if they differ."""
    if not accuracy.equal:
        raise StageError(
            f"candidate rejected: outputs differ from the original model "
            f"(maximum error {accuracy.max_abs_error:.3g}, relative {accuracy.max_rel_error:.3g})"
        )
    return accuracy


def _tolerance(kind: str) -> float:
    return TOLERANCE.get(kind, DEFAULT_TOLERANCE)


def _errors(output: Array, expected: Array, tolerance: float) -> tuple[float, float, bool]:
    """The absolute and the relative error of one output, and whether it is equal."""
    if output.shape != expected.shape or output.dtype != expected.dtype:
        return _DIFFERENT
    if expected.dtype.kind not in "fV":  # numpy knows bfloat16 as a void type
        error = _integer_error(output, expected)
        return error, error, error == 0
    tolerance = max(tolerance, _tolerance(str(expected.dtype)))
    output, expected = output.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(expected)
    if not np.array_equal(output[~finite], expected[~finite], equal_nan=True):
        return _DIFFERENT
    if not np.isfinite(output[finite]).all():
        return _DIFFERENT
    error = float(np.max(np.abs(output[finite] - expected[finite]), initial=0.0))
    scale = float(np.max(np.abs(expected[finite]), initial=0.0))
    relative = error / scale if scale > 0 else error
    return error, relative, relative <= tolerance


def _integer_error(output: Array, expected: Array) -> float:
    """The largest difference of integers or booleans, subtracted unsigned against overflow."""
    high, low = np.maximum(output, expected), np.minimum(output, expected)
    unsigned = f"u{output.dtype.itemsize}"
    return float(np.max(high.view(unsigned) - low.view(unsigned), initial=0))
