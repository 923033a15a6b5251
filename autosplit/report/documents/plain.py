"""Plain values out of JSON that anybody may have written: what is of another type becomes empty or None."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from autosplit.hardware.measurement.results import Spread


def spread_of(value: Any) -> Spread | None:
    """A median with its interval; the median alone where no end is given, None without one."""
    entry = mapping_of(value)
    median = number_of(entry.get("median"))
    if median is None:
        return None
    low, high = number_of(entry.get("low")), number_of(entry.get("high"))
    return Spread(median, median if low is None else low, median if high is None else high)


def number_of(value: Any) -> float | None:
    """A finite number that is not negative; everything in a record counts time, bytes or copies."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def numbers_of(value: Any) -> tuple[float, ...]:
    """All numbers of a list, or none where one of them is no number: they count places."""
    found = [number_of(v) for v in list_of(value)]
    return tuple(v for v in found if v is not None) if None not in found else ()


def list_of(value: Any) -> list[Any]:
    """A list, empty for what is none."""
    return list(value) if isinstance(value, list | tuple) else []


def mapping_of(value: Any) -> Mapping[str, Any]:
    """A mapping, empty for what is none."""
    return value if isinstance(value, dict) else {}


def strings_of(value: Any) -> tuple[str, ...]:
    """The texts of a list, a line each."""
    return tuple(text_of(v) for v in list_of(value))


def text_of(value: Any) -> str:
    """One line of text, empty for what is no text."""
    return " ".join(value.split())[:2000] if isinstance(value, str) else ""
