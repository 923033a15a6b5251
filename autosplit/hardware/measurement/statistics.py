"""Medians with the interval they lie in, from samples of any distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from autosplit.hardware.measurement.results import Spread

_Z = 1.96


def spread(samples: Sequence[float]) -> Spread:
    """The median and its 95 % interval by order statistics, which assumes nothing of the distribution.

    The ranks are those of the normal approximation to the binomial (Conover, Practical Nonparametric Statistics, 3.2);
    with fewer than six samples no interval reaches 95 %, and the range is given. In the unit of the samples. Raises ValueError
    without any.
    """
    if not samples:
        raise ValueError("a spread needs at least one sample")
    ordered = sorted(samples)
    count = len(ordered)
    reach = _Z * math.sqrt(count) / 2
    low = max(0, math.floor(count / 2 - reach))
    high = min(count - 1, math.ceil(count / 2 + reach))
    return Spread(median(ordered), ordered[low], ordered[high], tuple(samples))


def half_width(value: Spread) -> float:
    """Half the interval as a share of the median; infinite for a median of zero."""
    return (value.high - value.low) / 2 / value.median if value.median > 0 else math.inf
