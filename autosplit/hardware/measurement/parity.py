"""The judge: onnxruntime on the original file. A candidate's outputs count only where they equal its outputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autosplit.errors import ModelError, StageError, line_of
from autosplit.extras import require
from autosplit.hardware.measurement.results import Accuracy

Array = np.ndarray[Any, np.dtype[Any]]
TOLERANCE = {"float16": 1e-2, "bfloat16": 5e-2}
DEFAULT_TOLERANCE = 1e-4
_SESSION = {
    "inter_op_num_threads": 1,
    "log_severity_level": 4,
}  # an error is said once, as an exception


def onnxruntime_outputs(
    model: Path | bytes, items: Sequence[Mapping[str, Array]]
) -> list[dict[str, Array]]:
    """What onnxruntime computes for ``items`` on the model as it is. MachineError without it, ModelError where it refuses."""
    session = onnxruntime_session(model)
    names = [o.name for o in session.get_outputs()]
    try:
        return [dict(zip(names, session.run(names, dict(item)), strict=True)) for item in items]
    except Exception as error:
        raise ModelError(f"onnxruntime cannot run the model: {line_of(error)}") from error


def onnxruntime_session(
    model: Path | bytes, threads: int = 1, entries: Mapping[str, str] | None = None, **options: Any
) -> Any:
    """A CPU session with ``threads`` intra-op threads; ``entries`` and ``options`` are its configuration entries and
    fields of its SessionOptions. MachineError without onnxruntime, ModelError where it refuses.
    """
    onnxruntime = require_onnxruntime()
    chosen = onnxruntime.SessionOptions()
    for name, value in {**_SESSION, "intra_op_num_threads": threads, **options}.items():
        setattr(chosen, name, value)
    for name, value in (entries or {}).items():
        chosen.add_session_config_entry(name, value)
    try:
        given = model if isinstance(model, bytes) else str(model)
        return onnxruntime.InferenceSession(
            given,
            chosen,
            providers=["CPUExecutionProvider"],
            enable_fallback=False,  # which prints, and tries the same again
        )
    except Exception as error:
        raise ModelError(f"onnxruntime cannot load the model: {line_of(error)}") from error


def require_onnxruntime() -> Any:
    """The module. Raises MachineError where it is not there."""
    return require("onnxruntime", "onnx")


def compare(
    got: Sequence[Mapping[str, Array]],
    expected: Sequence[Mapping[str, Array]],
    kinds: Iterable[str] = (),
) -> Accuracy:
    """Compare outputs item by item. Errors are relative to the largest value of the output that was expected.

    Equal means within 1e-4 of that scale, and to the bit for integers and booleans; a NaN or an infinity must stand where
    one is expected. Where a float16 is among the output's own element type and ``kinds``, those that the model computes
    in, it is 1e-2. The model's outputs must be those expected, in names, shapes and number;
    nothing compared is not equal.
    """
    absolute = relative = 0.0
    tolerance = max(
        [TOLERANCE.get(kind, DEFAULT_TOLERANCE) for kind in kinds], default=DEFAULT_TOLERANCE
    )
    equal = len(got) == len(expected) > 0
    for mine, theirs in zip(got, expected, strict=False):
        equal = equal and mine.keys() == theirs.keys()
        for name, wanted in theirs.items():
            pair = (np.asarray(mine.get(name)), np.asarray(wanted))
            a, r, ok = _errors(*pair, tolerance) if name in mine else (np.inf, np.inf, False)
            absolute, relative, equal = max(absolute, a), max(relative, r), equal and ok
    return Accuracy(equal, float(absolute), float(relative), len(got))


def require_equal(accuracy: Accuracy) -> Accuracy:
    """The accuracy, if it is one that counts; StageError with the errors found otherwise."""
    if not accuracy.equal:
        raise StageError(
            f"wrong result, max abs err {accuracy.max_abs_error:.3g}, max rel err {accuracy.max_rel_error:.3g} "
            f"against the original model; the candidate does not count"
        )
    return accuracy


def _errors(mine: Array, wanted: Array, tolerance: float) -> tuple[float, float, bool]:
    if mine.shape != wanted.shape or mine.dtype != wanted.dtype:
        return np.inf, np.inf, False
    if wanted.dtype.kind not in "fV":
        gap = _whole_gap(mine, wanted)
        return gap, gap, gap == 0
    mine, exact = mine.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(exact)
    if (
        not np.array_equal(mine[~finite], exact[~finite], equal_nan=True)
        or not np.isfinite(mine[finite]).all()
    ):
        return np.inf, np.inf, False
    gap = float(np.max(np.abs(mine[finite] - exact[finite]), initial=0.0))
    scale = float(np.max(np.abs(exact[finite]), initial=0.0))
    share = gap / scale if scale > 0 else gap
    return gap, share, share <= max(tolerance, TOLERANCE.get(str(wanted.dtype), DEFAULT_TOLERANCE))


def _whole_gap(mine: Array, wanted: Array) -> float:
    """The largest difference of integers or booleans, taken without sign so that none is lost or overflows."""
    high, low = np.maximum(mine, wanted), np.minimum(mine, wanted)
    unsigned = f"u{mine.dtype.itemsize}"
    return float(np.max(high.view(unsigned) - low.view(unsigned), initial=0))
