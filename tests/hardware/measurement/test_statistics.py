import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.hardware.measurement.results import Spread
from autosplit.hardware.measurement.statistics import half_width, spread

positive = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=200)


@given(positive)
def test_the_median_lies_in_its_interval(samples):
    found = spread(samples)
    assert min(samples) <= found.low <= found.median <= found.high <= max(samples)


@given(positive)
def test_order_does_not_matter(samples):
    a, b = spread(samples), spread(samples[::-1])
    assert (a.median, a.low, a.high) == (b.median, b.low, b.high)


def test_the_interval_holds_the_median_of_what_is_sampled_19_times_in_20():
    draw = random.Random(0)
    found = [spread([draw.expovariate(1) for _ in range(41)]) for _ in range(2000)]
    share = sum(f.low <= math.log(2) <= f.high for f in found) / 2000
    assert 0.93 < share < 0.99


@pytest.mark.parametrize("count", [7, 20, 41, 100, 1001])
def test_the_interval_reaches_as_far_above_the_median_as_below(count):
    found = spread(list(map(float, range(count))))
    below, above = found.median - found.low, found.high - found.median
    assert abs(below - above) <= 1
    assert below == pytest.approx(1.96 * math.sqrt(count) / 2, abs=1)


def test_few_samples_give_their_range():
    assert spread([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0, (3.0, 1.0, 2.0))


def test_no_sample_has_no_spread():
    with pytest.raises(ValueError, match="at least one sample"):
        spread([])


def test_half_the_interval_as_a_share():
    assert half_width(Spread(10.0, 9.0, 12.0)) == pytest.approx(0.15)
    assert half_width(Spread(0.0, 0.0, 0.0)) == math.inf


def covers(count: int) -> float:
    """How often the interval of so many samples of a continuous distribution holds its median, to the last digit."""
    found = spread(list(map(float, range(count))))
    below = range(
        int(found.low) + 1, int(found.high) + 1
    )  # how many samples may lie below the median
    return sum(math.comb(count, k) for k in below) / 2**count


@pytest.mark.parametrize("count", [*range(6, 60), 99, 100, 500, 501])
def test_the_interval_is_no_narrower_than_it_says_and_hardly_wider(count):
    assert 0.945 <= covers(count) <= (0.99 if count < 20 else 0.98)


@given(positive, st.floats(0.1, 10))
def test_other_units_give_the_same_share(samples, factor):
    scaled = half_width(spread([factor * s for s in samples]))
    assert scaled == pytest.approx(half_width(spread(samples)), rel=1e-6, abs=1e-9)


def test_the_samples_are_kept_as_they_came():
    assert spread([3.0, 1.0, 2.0, 1.0]).samples == (3.0, 1.0, 2.0, 1.0)


def test_a_small_median_has_a_share_too():
    assert half_width(Spread(0.01, 0.009, 0.011)) == pytest.approx(0.1)
