"""Plain values out of JSON: what is of the right type stays, all else becomes empty or None."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.hardware.measurement.results import Spread
from autosplit.report.documents import plain

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


@pytest.mark.parametrize("value", [0, 0.0, 1, 0.5, 1e300, 2**53])
def test_a_number_that_counts_something_stays(value):
    assert plain.number_of(value) == value


@pytest.mark.parametrize(
    "value",
    [
        -1,
        -1e-9,
        math.nan,
        math.inf,
        -math.inf,
        True,
        False,
        None,
        "1",
        [1],
        {},
        10**400,
        -(10**400),
    ],
)
def test_what_counts_nothing_is_no_number(value):
    assert plain.number_of(value) is None


def test_a_list_with_one_that_is_no_number_has_none():
    assert plain.numbers_of([0, 1.5, 2]) == (0.0, 1.5, 2.0)
    assert plain.numbers_of([0, None, 2]) == ()
    assert plain.numbers_of("12") == ()


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ({"median": 2.0, "low": 1.0, "high": 4.0}, Spread(2.0, 1.0, 4.0)),
        ({"median": 2.0}, Spread(2.0, 2.0, 2.0)),
        ({"median": 2.0, "low": 0}, Spread(2.0, 0.0, 2.0)),
        ({"median": 2.0, "high": 4.0, "low": "x"}, Spread(2.0, 2.0, 4.0)),
        ({"median": 0}, Spread(0.0, 0.0, 0.0)),
        ({"low": 1.0, "high": 4.0}, None),
        ({"median": -1.0}, None),
        (2.0, None),
    ],
)
def test_a_spread_needs_a_median_and_no_more(entry, found):
    assert plain.spread_of(entry) == found


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\n b\t c ", "a b c"),
        ("", ""),
        ("x" * 2000, "x" * 2000),
        ("x" * 2001, "x" * 2000),
        (7, ""),
        (None, ""),
        (["a"], ""),
    ],
)
def test_text_is_one_line_of_at_most_2000_characters(value, text):
    assert plain.text_of(value) == text


def test_a_list_of_texts_keeps_its_places():
    assert plain.strings_of(["a", 1, " b\n"]) == ("a", "", "b")
    assert plain.strings_of("ab") == ()


@given(json_values)
def test_whatever_it_is_the_type_is_right(value):
    assert isinstance(plain.list_of(value), list)
    assert isinstance(plain.mapping_of(value), dict)
    assert isinstance(plain.text_of(value), str)
    assert all(math.isfinite(n) and n >= 0 for n in plain.numbers_of(value))
    assert plain.mapping_of(value) in ({}, value)
    assert plain.list_of(value) in ([], value)
