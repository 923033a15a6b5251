import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.hardware.measurement import results
from autosplit.serialization import dump, load

KINDS = (results.Baseline, results.LoadTest, results.Measurement, results.Profile)
st.register_type_strategy(float, st.floats(allow_nan=False))  # infinite times and bandwidths too


@pytest.mark.parametrize("kind", [*KINDS, list[results.LinkCost]])
@given(data=st.data())
def test_a_value_reads_back_from_json_as_it_was(kind, data):
    value = data.draw(st.from_type(kind))
    assert load(kind, json.loads(json.dumps(dump(value)))) == value
