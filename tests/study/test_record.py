"""The record of a study: values of the right type stay, all others become empty or None."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.hardware.measurement.results import Spread
from autosplit.study.record import StudyRecord, TrialRecord

TEXT = st.text(max_size=5)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
STUDY_KEYS = st.sampled_from(sorted(StudyRecord.model_fields))
TRIAL_KEYS = st.sampled_from(sorted(TrialRecord.model_fields))


def of_trial(**attributes):
    return TrialRecord.model_validate(attributes)


def of_study(**attributes):
    return StudyRecord.model_validate(attributes)


@pytest.mark.parametrize("value", [0, 0.0, 1, 0.5, 1e300, 2**53])
def test_a_number_that_counts_something_stays(value):
    assert of_trial(predicted_ms=value).predicted_ms == value


@pytest.mark.parametrize("value", [-1e-9, math.nan, math.inf, True, None, "1", [1], {}, 10**400])
def test_other_values_are_no_number(value):
    assert of_trial(predicted_ms=value).predicted_ms is None


@pytest.mark.parametrize(
    ("value", "numbers"), [([0, 1.5], (0.0, 1.5)), ([0, None], ()), ("12", ())]
)
def test_one_value_that_is_no_number_spoils_a_list(value, numbers):
    assert of_trial(stage_ms=value).stage_ms == numbers


@pytest.mark.parametrize(
    ("value", "spread"),
    [
        ({"median": 2.0, "low": 1.0, "high": 4.0}, Spread(2.0, 1.0, 4.0)),
        ({"median": 2.0, "low": 0, "high": 2}, Spread(2.0, 0.0, 2.0)),
        ({"median": 2.0, "low": "x", "high": 4.0}, None),
        ({"low": 1.0, "high": 4.0}, None),
        ({"median": 2.0, "low": -1.0, "high": 4.0}, None),
        ({"median": 2.0, "low": 1.0, "high": math.inf}, None),
        ({"median": 2.0, "low": 1.0, "high": 10**400}, None),
        ([], None),
        (2.0, None),
    ],
)
def test_a_spread_is_three_times_or_none(value, spread):
    assert of_trial(period_ms=value).period_ms == spread


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\n b\t c ", "a b c"),
        ("", ""),
        ("\ud800", "\ud800"),
        ("x" * 2000, "x" * 2000),
        ("x" * 2001, "x" * 2000),
        (7, ""),
        (None, ""),
        (["a"], ""),
    ],
)
def test_text_is_one_line_of_at_most_2000_characters(value, text):
    assert of_trial(error=value).error == text


def test_a_list_of_texts_keeps_its_places():
    assert of_study(devices=["a", 1, " b\n"]).devices == ("a", "", "b")
    assert of_study(devices="ab").devices == ()


@pytest.mark.parametrize(
    "stages",
    [[[0, True]], [[-1]], [[0.0]], [["0"]], [[0], 1], [[None]], "01", {"0": [0]}, [[0]] * 257],
)
def test_stages_that_are_none_are_left_out(stages):
    assert of_trial(stages=stages).stages == ()


def test_as_many_stages_as_there_can_be_are_read():
    assert len(of_trial(stages=[[i] for i in range(256)]).stages) == 256


@pytest.mark.parametrize(
    ("cut", "tensors"),
    [
        ([["t", 4]], (("t", 4),)),
        ([["t", 4], ["u", 0]], (("t", 4), ("u", 0))),
        ([["t"]], None),
        ([["t", -1]], None),
        ([["u", 4], ["v", True]], None),
        ([[7, 4]], (("", 4),)),
        ("t", None),
    ],
)
def test_live_tensors_have_a_name_and_a_size(cut, tensors):
    assert of_trial(live=[cut]).live == (() if tensors is None else (tensors,))


PERIOD, LATENCY = ({"median": ms, "low": ms, "high": ms} for ms in (2.0, 3.0))


@pytest.mark.parametrize(
    ("stored", "baseline"),
    [
        (
            {"name": "one core", "period_ms": PERIOD, "latency_ms": LATENCY, "copies": 2},
            (2.0, 3.0, 2),
        ),
        ({"name": "one core", "period_ms": PERIOD, "latency_ms": LATENCY}, (2.0, 3.0, 1)),
        ({"name": "one core", "period_ms": PERIOD, "copies": 0}, (2.0, None, 1)),
        ({"name": "", "period_ms": PERIOD}, None),
        ({"period_ms": PERIOD}, None),
        ({"name": "one core"}, None),
        ({"name": "one core", "period_ms": PERIOD, "copies": None}, (2.0, None, 1)),
        (3, None),
    ],
)
def test_a_baseline_needs_a_name_and_a_period(stored, baseline):
    baselines = of_study(baselines=[stored]).compared_baselines()
    assert len(baselines) == (baseline is not None)
    for read in baselines:
        latency = read.latency_ms.median
        known = None if math.isnan(latency) else latency
        assert (read.period_ms.median, known, read.copies) == baseline


@given(st.dictionaries(STUDY_KEYS, JSON), st.dictionaries(TRIAL_KEYS, JSON))
def test_whatever_is_stored_is_read(of_a_study, of_a_trial):
    study, trial = of_study(**of_a_study), of_trial(**of_a_trial)
    assert isinstance(study.devices, tuple)
    assert isinstance(study.config, dict)
    assert all(number >= 0 for number in study.final_comparison.numbers(0))
    assert all(math.isfinite(n) and n >= 0 for n in trial.stage_ms)
