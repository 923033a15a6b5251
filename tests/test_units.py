import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.units import between, counted, digits, milliseconds, size


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1234.5, "1234"), (99.96, "100"), (12.345, "12.3"), (0.00123, "0.00123"), (5e-4, "0.0005"),
     (0, "0"), (-2.5, "-2.5"), (-12.345, "-12.3")],
)  # fmt: skip
def test_numbers_have_three_digits(value, shown):
    assert (digits(value), milliseconds(value)) == (shown, f"{shown} ms")


@given(st.floats(-1e12, 1e12))
def test_no_number_is_a_power_of_ten_and_each_is_near_itself(value):
    assert re.fullmatch(r"-?\d+(\.\d+)?", digits(value))
    assert float(digits(value)) == pytest.approx(value, rel=0.0051, abs=6e-7)


def test_sizes_grow_by_a_thousand():
    sizes = [size(n) for n in (0, 999, 1000, 1_254_400, 999_600, 10**12)]
    assert sizes == ["0 B", "999 B", "1 kB", "1.25 MB", "1 MB", "1000 GB"]


def test_an_interval_is_written_where_it_has_a_width():
    assert between(1.0, 1.0) == ""
    assert between(1234.0, 2000.0) == " (1234 to 2000)"


def test_one_thing_is_no_plural():
    assert [counted(n, "op") for n in (0, 1, 2)] == ["0 ops", "1 op", "2 ops"]
