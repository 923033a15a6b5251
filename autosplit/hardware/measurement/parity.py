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
_WRONG = 0.1  # a larger error is not caused by rounding
NO_NOISE: Mapping[str, float] = {}
_DIFFERENT = (np.inf, np.inf, False)


def compare(
    outputs: Sequence[Mapping[str, Array]],
    expected: Sequence[Mapping[str, Array]],
    kinds: Iterable[str] = (),
    noise: Mapping[str, float] = NO_NOISE,
    asked: float | None = None,
) -> Accuracy:
    """Compare outputs with the expected ones, item by item.

    Errors are relative to the largest value of the expected output. Outputs are equal within the
    largest tolerance of their own element type and of ``kinds``, those that the model computes in,
    or within the tolerance that was ``asked`` for; ``noise`` adds to it by output. Integers and
    booleans are equal to the bit, but noise is allowed to integers of 8 bits, which are quantised.
    NaN and infinities must be where they are expected. Names, shapes and numbers must be equal,
    and no items at all are not equal.
    """
    absolute = relative = 0.0
    of_kinds = max(map(_tolerance, kinds), default=DEFAULT_TOLERANCE)
    tolerance = of_kinds if asked is None else asked
    equal = len(outputs) == len(expected) > 0
    for item, expected_item in zip(outputs, expected, strict=False):
        equal = equal and item.keys() == expected_item.keys()
        for name, array in expected_item.items():
            errors = _DIFFERENT
            if name in item:
                array, output = np.asarray(array), np.asarray(item[name])
                of_output = _tolerance(str(array.dtype)) if asked is None else 0.0
                allowed = noise.get(name, 0.0)
                # A reference that differs from itself by more than this is wrong.
                noisy = max(tolerance, of_output) + min(allowed, _WRONG)
                errors = _errors(output, array, noisy, allowed)
            absolute, relative = max(absolute, errors[0]), max(relative, errors[1])
            equal = equal and errors[2]
    reason = "" if equal else _reason(relative, tolerance, max(noise.values(), default=0.0))
    return Accuracy(equal, float(absolute), float(relative), len(outputs), reason)


def _reason(error: float, tolerance: float, noise: float) -> str:
    if not np.isfinite(error) or error <= tolerance:
        return "outputs differ from the original model in shape, type, NaN, infinities or integers"
    text = f"outputs differ from the original model (relative error {error:.3g}, "
    text += f"tolerance {tolerance:.3g}"
    if noise:
        text += f" and {noise:.3g} by which its reference differs from itself without optimisation"
    if error > _WRONG:
        return f"{text})"
    return f"{text}); if that is good enough, give --tolerance {1.1 * error:.2g}"


def require_equal(accuracy: Accuracy) -> Accuracy:
    """The accuracy of equal outputs. Raises StageError with the reason if they differ."""
    if not accuracy.equal:
        raise StageError(f"candidate rejected: {accuracy.reason}")
    return accuracy


def distances(
    outputs: Sequence[Mapping[str, Array]], others: Sequence[Mapping[str, Array]]
) -> dict[str, float]:
    """The largest error of each output between two ways to compute it; 0 where it is not finite."""
    largest: dict[str, float] = {}
    for item, other in zip(outputs, others, strict=True):
        for name, array in item.items():
            error = _errors(np.asarray(other[name]), np.asarray(array), 0.0, np.inf)[1]
            largest[name] = max(largest.get(name, 0.0), error if np.isfinite(error) else 0.0)
    return largest


def _tolerance(kind: str) -> float:
    return TOLERANCE.get(kind, DEFAULT_TOLERANCE)


def _errors(
    output: Array, expected: Array, tolerance: float, noise: float
) -> tuple[float, float, bool]:
    """The absolute and the relative error of one output, and whether it is equal."""
    if output.shape != expected.shape or output.dtype != expected.dtype:
        return _DIFFERENT
    if expected.dtype.kind not in "fV":  # numpy knows bfloat16 as a void type
        error = _integer_error(output, expected)
        is_quantised = expected.dtype.kind in "iu" and expected.dtype.itemsize == 1
        is_equal = error <= (noise if is_quantised else 0)
        # The tolerance does not apply to integers.
        return error, error if is_equal else np.inf, is_equal
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
    # A difference of two signed integers may not fit their type.
    unsigned = f"u{output.dtype.itemsize}"
    return float(np.max(high.view(unsigned) - low.view(unsigned), initial=0))
