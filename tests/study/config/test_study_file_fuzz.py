"""A study file is untrusted: whatever it holds, it is read or refused in one printable line."""

import string

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from autosplit.errors import ConfigError
from autosplit.study.config.study_file import SECTIONS, load

QUICK = settings(max_examples=5 * settings().max_examples, derandomize=True)
GOOD = """
name = "fuzz"
zoo = "squeezenet"
stages = 2
devices = ["cores:0", "cores:1"]
objective = "latency"
shapes = {x = [1, 3]}
[search]
sampler = "tpe"
trials = 7
timeout = 1.5
[measure]
items = 4
[[regions]]
backend = "b"
device = "cores:1"
"""
KEYS = [key + field for key, section in SECTIONS.items() for field in section.model_fields]
SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.dates(),
    st.sampled_from(["auto", "planner", "simulated", "cores:0", "\x1b[31m", "../../etc", "\u202e"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.text(string.ascii_letters + "_", min_size=1), inner, max_size=4),
    ),
    max_leaves=6,
)


def read(folder, content):
    """The study file, or None where it is refused as it should be."""
    file = folder / "fuzz.toml"
    file.write_bytes(content)
    try:
        return load(file)
    except ConfigError as error:
        message = str(error)
    assert message
    assert "\n" not in message
    return None


@given(st.binary(max_size=400))
@QUICK
def test_any_bytes(tmp_path, content):
    read(tmp_path, content)


@given(st.data())
@QUICK
def test_a_file_with_some_bytes_changed(tmp_path, data):
    content = bytearray(GOOD.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    read(tmp_path, bytes(content))


@given(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6), st.booleans())
@QUICK
def test_known_keys_with_any_values(tmp_path, values, add):
    document = {"zoo": "squeezenet", "stages": 2} if add else {}
    for key, value in values.items():
        section, _, field = key.rpartition(".")
        table = document.setdefault(section, {}) if section else document
        if isinstance(table, dict):
            table[field] = value
    config = read(tmp_path, tomli_w.dumps(document).encode())
    if config is not None:
        assert 1 <= config.most_stages <= 256


@given(st.dictionaries(st.text(string.ascii_letters + "._-", min_size=1), VALUES, max_size=4))
@QUICK
def test_unknown_keys(tmp_path, values):
    read(tmp_path, (GOOD + "\n[extra]\n" + tomli_w.dumps(values)).encode())


def test_the_file_that_is_changed_is_a_study_file(tmp_path):
    assert read(tmp_path, GOOD.encode()) is not None


@pytest.mark.parametrize("nesting", ["[" * 10_000, "{a=" * 10_000, "a." * 10_000])
def test_deep_nesting(tmp_path, nesting):
    assert read(tmp_path, f"stages = {nesting}".encode()) is None
