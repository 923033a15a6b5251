import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from autosplit.hardware.measurement.results import (
    Accuracy,
    Baseline,
    LinkCost,
    Measurement,
    Profile,
    Spread,
)
from autosplit.serialization import dump, load

numbers = st.floats(allow_nan=False, allow_infinity=False)
spreads = st.builds(Spread, numbers, numbers, numbers, st.lists(numbers, max_size=3).map(tuple))
rows = st.lists(numbers, max_size=4).map(tuple)
values = st.one_of(
    st.builds(Profile, st.text(max_size=5), rows, rows),
    st.builds(Baseline, st.text(max_size=5), spreads, spreads, st.integers(1, 9)),
    st.builds(
        Measurement,
        spreads,
        spreads,
        rows,
        st.builds(Accuracy, st.booleans(), numbers, numbers, st.integers(0, 9)),
    ),
)


@given(values)
def test_a_value_reads_back_from_json_as_it_was(value):
    assert load(type(value), json.loads(json.dumps(dump(value)))) == value


def test_a_link_without_costs_survives_json():
    link = LinkCost("here")
    assert load(list[LinkCost], json.loads(json.dumps(dump([link])))) == [link]
    assert link.bandwidth == math.inf


@pytest.mark.parametrize("document", [None, {"median": "fast", "low": 1.0, "high": 1.0}])
def test_a_document_that_is_no_value_is_refused(document):
    with pytest.raises(ValidationError):
        load(Spread, document)
