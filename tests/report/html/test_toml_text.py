import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.report.html.toml_text import dumps

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUE = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def depth(value):
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return max(map(depth, below), default=0) + 1


@given(st.dictionaries(TEXT, VALUE.filter(lambda v: depth(v) < 7), max_size=4))
def test_what_is_written_reads_back(values):
    assert tomllib.loads(dumps(values)) == values


def test_sections_come_after_plain_keys():
    text = dumps({"search": {"trials": 3}, "name": "net", "devices": ["cores:0"], "timeout": None})
    assert text == 'name = "net"\ndevices = ["cores:0"]\n\n[search]\ntrials = 3\n'


def test_what_is_no_text_becomes_a_question_mark():
    assert tomllib.loads(dumps({"a": "\ud800b"})) == {"a": "?b"}


@pytest.mark.parametrize("kind", [lambda v: [v], lambda v: {"k": v}])
def test_what_lies_too_deep_is_left_out(kind):
    value = 1
    for _ in range(500):
        value = kind(value)
    assert tomllib.loads(dumps({"deep": value, "name": "net"}))["name"] == "net"


def nested(kind, depth):
    value = 1
    for _ in range(depth):
        value = kind(value)
    return value


@pytest.mark.parametrize("kind", [lambda v: [v], lambda v: {"k": v}])
def test_eight_levels_are_written_and_no_more(kind):
    assert tomllib.loads(dumps({"deep": nested(kind, 8)})) == {"deep": nested(kind, 8)}
    assert tomllib.loads(dumps({"deep": nested(kind, 9)})) != {"deep": nested(kind, 9)}


def test_tables_in_lists_are_written_inline_without_what_has_no_value():
    text = dumps({"cuts": [{"after": "a b", "none": None}, None, [1, None, 2.5]]})
    assert text == 'cuts = [{after = "a b"}, [1, 2.5]]\n'


@pytest.mark.parametrize("key", ["", "a.b", "a b", "ü", '"', "]", "\n", "#", "=", "a\x7f"])
def test_any_key_reads_back_as_a_key_and_as_a_section(key):
    values = {key: 1, "s": {key: {key: True}}}
    assert tomllib.loads(dumps(values)) == values


def test_an_empty_section_stays():
    assert tomllib.loads(dumps({"a": {}, "b": {"c": {}}})) == {"a": {}, "b": {"c": {}}}


def test_numbers_that_are_none_are_toml_too():
    found = tomllib.loads(dumps({"a": float("inf"), "b": -float("inf"), "c": float("nan")}))
    assert (found["a"], found["b"]) == (float("inf"), -float("inf"))
    assert found["c"] != found["c"]
