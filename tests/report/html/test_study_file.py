import functools
import math
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.report.html.page import study_file

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUE = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
PLACES = {"storage", "model", "tuning"}  # keys that are changed on purpose


def depth(value):
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


def full(value):
    """A value without the keys of tables that have nothing."""
    if isinstance(value, dict):
        items = {key: full(item) for key, item in value.items()}
        return {key: item for key, item in items.items() if item not in ("", [], {})}
    return [full(item) for item in value] if isinstance(value, list) else value


@given(
    st.dictionaries(TEXT.filter(lambda key: key not in PLACES), VALUE, max_size=4).filter(
        lambda v: depth(v) < 8
    )
)
def test_a_study_file_reads_back(values):
    assert tomllib.loads(study_file({"a": values})) == full({"a": values})


@pytest.mark.parametrize("key", ["", "a.b", "a b", "ü", '"', "]", "\n", "#", "=", "a\x7f"])
def test_any_key_and_number_reads_back(key):
    values = {key: 1, "s": {key: {key: True}}, "inf": -math.inf, "text": "\ud800b"}
    assert tomllib.loads(study_file(values)) == values | {"text": "?b"}


@pytest.mark.parametrize("depth", [9, 500])
def test_what_is_too_deep_is_left_out(depth):
    value = functools.reduce(lambda inner, _: [{"k": inner}], range(depth), 1)
    values = tomllib.loads(study_file({"deep": value, "name": "net"}))
    assert values["name"] == "net"
    assert values["deep"] != value
