"""Numbers as people read them: a time, a size, a count; never in powers of ten."""

from __future__ import annotations


def digits(value: float) -> str:
    """A number with three significant digits, all before the point and at most six after it."""
    if abs(value) >= 0.001:
        return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:.6f}".rstrip("0").rstrip(".")


def milliseconds(value: float) -> str:
    """A time: 12.3 ms."""
    return f"{digits(value)} ms"


def bound_text(bound_ms: float, best_ms: float | None) -> str:
    """The predicted bound, never without a word where a measurement is below it."""
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


def counted(count: int, thing: str) -> str:
    """A number of things: 1 op, 2 ops."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"
