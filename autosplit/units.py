"""Numbers formatted for people: times, sizes and counts, never in scientific notation."""

from __future__ import annotations

import re

_SIZE = re.compile(r"(\d+(?:\.\d+)?(?:[eE]\d+)?)\s*(k|M|G)?B?", re.ASCII)
_FACTORS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}


def digits(value: float) -> str:
    """A number with three significant digits, or all integer digits; at most six decimals."""
    if abs(value) >= 0.001:
        return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:.6f}".rstrip("0").rstrip(".")


def milliseconds(value: float) -> str:
    """A time: 12.3 ms."""
    return f"{digits(value)} ms"


def bound_text(bound_ms: float, best_ms: float | None) -> str:
    """The predicted bound as text, with a remark if a measurement is below it."""
    is_below = best_ms is not None and best_ms < bound_ms
    return f"{milliseconds(bound_ms)} by the profile{', which was too slow' if is_below else ''}"


def between(low: float, high: float) -> str:
    """An interval to write behind a number: `` (12.1 to 12.5)``; empty where it has no width."""
    return f" ({digits(low)} to {digits(high)})" if low != high else ""


def size(count: float) -> str:
    """A number of bytes: 1.2 MB, in powers of 1,000."""
    value, unit = count, "B"
    for larger in ("kB", "MB", "GB"):
        if value < 999.5:
            break
        value, unit = value / 1000, larger
    return f"{digits(value)} {unit}"


def bytes_of(text: str) -> float:
    """The bytes of ``3e9``, ``3 GB`` or ``500 MB``. Raises ValueError for any other text."""
    match = _SIZE.fullmatch(text.strip())
    count = float(match[1]) * _FACTORS[match[2] or ""] if match else 0.0
    if not 0 < count < float("inf"):
        raise ValueError(f"invalid number of bytes {text!r}; give 3e9 or 3 GB")
    return count


def counted(count: int, thing: str) -> str:
    """A number of things: 1 op, 2 ops."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def duration(seconds: float) -> str:
    """A time in seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
