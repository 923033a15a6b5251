"""The record of a study: values of the right type stay, all others become empty or None."""

import math

import pytest

from autosplit.hardware.measurement.results import Spread
from autosplit.study.record import StudyRecord, TrialRecord


def of_study(**attributes):
    return StudyRecord.model_validate(attributes)


WHOLE = tuple((i,) for i in range(256))
SPREAD = {"median": 2.0, "low": 1.0, "high": 4.0}


@pytest.mark.parametrize(
    ("key", "stored", "read"),
    [
        *(("predicted_ms", value, value) for value in (0, 0.0, 1, 0.5, 1e300, 2**53)),
        *(("predicted_ms", value, None)
          for value in (-1e-9, math.nan, math.inf, True, None, "1", [1], {}, 10**400)),
        ("stage_ms", [0, 1.5], (0.0, 1.5)),
        ("stage_ms", [0, None], ()),
        ("stage_ms", "12", ()),
        ("period_ms", SPREAD, Spread(2.0, 1.0, 4.0)),
        ("period_ms", SPREAD | {"low": 0, "high": 2}, Spread(2.0, 0.0, 2.0)),
        *(("period_ms", SPREAD | wrong, None)
          for wrong in ({"low": "x"}, {"low": -1.0}, {"high": math.inf}, {"high": 10**400})),
        *(("period_ms", value, None) for value in ({"low": 1.0, "high": 4.0}, [], 2.0)),
        ("error", "a\n b\t c ", "a b c"),
        ("error", "\ud800", "\ud800"),
        *(("error", "x" * size, "x" * 2000) for size in (2000, 2001)),
        *(("error", value, "") for value in ("", 7, None, ["a"])),
        ("stages", [list(ops) for ops in WHOLE], WHOLE),
        *(("stages", value, ()) for value in ([[0, True]], [[-1]], [[0.0]], [["0"]], [[0], 1],
                                              [[None]], "01", {"0": [0]}, [[0]] * 257)),
        ("live", [[["t", 4]]], ((("t", 4),),)),
        ("live", [[["t", 4], ["u", 0]]], ((("t", 4), ("u", 0)),)),
        ("live", [[[7, 4]]], ((("", 4),),)),
        *(("live", [cut], ()) for cut in ([["t"]], [["t", -1]], [["u", 4], ["v", True]], "t")),
    ],
)  # fmt: skip
def test_a_value_of_a_trial_that_is_not_valid_is_the_default(key, stored, read):
    assert getattr(TrialRecord.model_validate({key: stored}), key) == read


@pytest.mark.parametrize(
    ("key", "stored", "read"),
    [
        ("devices", ["a", 1, " b\n"], ("a", "", "b")),
        ("devices", "ab", ()),
        ("cut_periods", [["3", 2.0], ["1f", 4.5]], ((3, 2.0), (31, 4.5))),
        *(("cut_periods", value, ())
          for value in ([["-1", 1.0]], [["1", -1.0]], [["1", "2"]], [[1, 2.0]], [["g", 1.0]], "1",
                        ["1"], [None], {"1": 2.0}, None)),
    ],
)  # fmt: skip
def test_a_value_of_a_study_that_is_not_valid_is_the_default(key, stored, read):
    assert getattr(of_study(**{key: stored}), key) == read


PERIOD, LATENCY = ({"median": ms, "low": ms, "high": ms} for ms in (2.0, 3.0))
BASELINE = {"name": "one core", "period_ms": PERIOD}


@pytest.mark.parametrize(
    ("stored", "baseline"),
    [
        (BASELINE | {"latency_ms": LATENCY, "copies": 2}, "2.0 3.0 2"),
        (BASELINE | {"latency_ms": LATENCY}, "2.0 3.0 1"),
        (BASELINE | {"copies": 0}, "2.0 nan 1"),
        (BASELINE | {"copies": None}, "2.0 nan 1"),
        *((nothing, "") for nothing in (BASELINE | {"name": ""}, {"period_ms": PERIOD},
                                        {"name": "one core"}, 3)),
    ],
)  # fmt: skip
def test_a_baseline_needs_a_name_and_a_period(stored, baseline):
    read = of_study(baselines=[stored]).compared_baselines()
    figures = [f"{b.period_ms.median} {b.latency_ms.median} {b.copies}" for b in read]
    assert figures == ([baseline] if baseline else [])
