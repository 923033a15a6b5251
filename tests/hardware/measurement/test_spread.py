import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.hardware.measurement.results import Spread, spread

positive = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=200)


@given(positive)
def test_the_median_lies_in_its_interval(samples):
    result = spread(samples)
    assert min(samples) <= result.low <= result.median <= result.high <= max(samples)


def test_few_samples_give_their_range():
    assert spread([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0, (3.0, 1.0, 2.0))


def coverage(count):
    """How often the interval of ``count`` samples contains the median of their distribution."""
    interval = spread(list(map(float, range(count))))
    # The interval contains the median if this many samples are below the median.
    below = range(int(interval.low) + 1, int(interval.high) + 1)
    return sum(math.comb(count, k) for k in below) / 2**count


@pytest.mark.parametrize("count", [*range(6, 60), 99, 100, 500, 501])
def test_the_interval_covers_95_percent_and_hardly_more(count):
    assert 0.945 <= coverage(count) <= (0.99 if count < 20 else 0.98)


@given(positive, st.floats(0.1, 10))
def test_the_relative_half_width_does_not_depend_on_the_unit(samples, factor):
    scaled = spread([factor * s for s in samples]).relative_half_width
    assert scaled == pytest.approx(spread(samples).relative_half_width, rel=1e-6, abs=1e-9)
