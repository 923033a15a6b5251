"""A study file is untrusted: whatever it holds, it is read or refused in one printable line."""

import string

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from autosplit.errors import ConfigError
from autosplit.study.config.study_file import SECTIONS, load
from tests.frontend.mutations import bytes_changed

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


@st.composite
def known(draw):
    document = draw(st.sampled_from([{}, {"zoo": "squeezenet", "stages": 2}])).copy()
    for key, value in draw(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6)).items():
        section, _, field = key.rpartition(".")
        table = document.setdefault(section, {}) if section else document
        if isinstance(table, dict):
            table[field] = value
    return tomli_w.dumps(document).encode()


UNKNOWN = st.dictionaries(st.text(string.ascii_letters + "._-", min_size=1), VALUES, max_size=4)
CONTENTS = (
    st.binary(max_size=400),
    st.randoms(use_true_random=True).map(lambda rng: bytes_changed(GOOD.encode(), rng)),
    known(),
    UNKNOWN.map(lambda values: f"{GOOD}\n[extra]\n{tomli_w.dumps(values)}".encode()),
)


@pytest.mark.parametrize("contents", CONTENTS, ids=["bytes", "changed", "known", "unknown"])
@given(data=st.data())
@QUICK
def test_any_file_is_read_or_refused(tmp_path, contents, data):
    (tmp_path / "fuzz.toml").write_bytes(data.draw(contents))
    message = ""
    try:
        assert 1 <= load(tmp_path / "fuzz.toml").most_stages <= 256
    except ConfigError as error:
        message = str(error)
    assert message.isprintable()


def test_the_file_that_is_changed_is_a_study_file(tmp_path):
    (tmp_path / "fuzz.toml").write_text(GOOD)
    assert load(tmp_path / "fuzz.toml").stages == 2
