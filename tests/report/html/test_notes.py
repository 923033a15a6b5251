from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosplit.report.documents.record import Study, read
from autosplit.report.html.notes import escape, headline, study_note, trial_note

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
STUDY_KEYS = (
    "autosplit",
    "identity",
    "config",
    "graph",
    "devices",
    "profile",
    "bound_ms",
    "baselines",
    "verdict",
    "stopped",
)
TRIAL_KEYS = (
    "stages",
    "cuts",
    "live",
    "predicted_ms",
    "period_ms",
    "latency_ms",
    "stage_ms",
    "max_rel_error",
    "error",
)


def test_a_note_shows_each_stage_with_its_ops_times_and_what_it_sends_on(study: Study) -> None:
    note = trial_note(study, study.trials[3])
    header, _, first, second = [line for line in note.splitlines() if line.startswith("|")]
    assert header.split(" | ")[1:6] == ["device", "ops", "first op", "last op", "busy"]
    assert first.split(" | ")[:6] == [
        "| 0",
        escape("cores:0"),
        "15",
        escape("conv1_relu"),
        "pool4",
        "7.5 ms",
    ]
    assert f"{escape('pool4:0')} (400 kB)" in first
    assert second.count("█") > first.count("█") > 0


def test_a_trial_is_compared_with_the_best_before_it(study: Study) -> None:
    assert headline(study, study.trials[0]).endswith("the first measured")
    assert headline(study, study.trials[6]).endswith("8.5 % faster than the best so far (trial 4)")
    assert headline(study, study.trials[10]).endswith("4.7 % slower than the best so far (trial 8)")
    assert headline(study, study.trials[8]).endswith("the best of the study")


def test_a_failed_trial_shows_its_reason_and_no_times(study: Study) -> None:
    note = trial_note(study, study.trials[5])
    assert f"**Failed:** {escape(study.trials[5].error)}" in note
    assert "signal 11" in note
    assert "busy" not in note


def test_a_failed_trial_without_a_reason_says_so(study: Study) -> None:
    assert "no reason was recorded" in trial_note(study, replace(study.trials[5], error=""))


def test_the_study_note_has_question_verdict_machine_and_the_ways_to_run_it(study: Study) -> None:
    note = study_note(study)
    assert note.startswith(
        f"### {escape('How is squeezenet best split into 2 stages on cores:0, cores:1?')}"
    )
    assert "do not split" in note
    assert [f"| {name} | " in note for name in ("one core", "all cores", "replicas")] == [True] * 3
    assert "**best split (trial 8)** | 10.7 ms" in note
    assert "a cpu" in note


def test_a_running_study_has_no_verdict_yet(study: Study) -> None:
    assert "none yet" in study_note(replace(study, verdict=""))


def test_a_stage_with_many_live_tensors_names_the_largest(study: Study) -> None:
    trial = replace(study.trials[0], live=((*((f"t{i}", i * 1000) for i in range(9)),),))
    assert "t8 (8 kB), t7 (7 kB), t6 (6 kB), t5 (5 kB), 5 more (10 kB)" in trial_note(study, trial)


@given(st.text())
def test_escaped_text_holds_no_markup_and_one_line(text: str) -> None:
    left = re.sub(r"&#\d+;", "", escape(text))
    assert not set(left) & set("\\`*_{}[]<>()#+-.!|~$&@\n\r")
    assert ":/" not in left


@pytest.mark.parametrize(
    "name",
    ["a|b", "![x](http://evil)", "<img src=x onerror=alert(1)>", "`x`\n\n# y", "https://evil"],
)
def test_names_cannot_leave_their_cell(study: Study, name: str) -> None:
    plain = trial_note(study, study.trials[3])
    hostile = trial_note(replace(study, devices=(name, name)), study.trials[3])
    assert hostile.count("|") == plain.count("|")
    assert hostile.count("\n") == plain.count("\n")
    assert "<" not in hostile
    assert "![" not in hostile


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, True, "9", None, 10**400])
def test_what_is_no_time_is_left_out(value: Any) -> None:
    study = optuna.create_study()
    study.set_user_attr("bound_ms", value)
    trial = study.ask()
    trial.set_user_attr("stage_ms", [1.0, value])
    record = read(study)
    assert (record.bound_ms, record.trials[0].stage_ms) == (None, ())


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.sampled_from(STUDY_KEYS), JSON),
    st.dictionaries(st.sampled_from(TRIAL_KEYS), JSON),
    st.booleans(),
)
def test_attributes_of_any_type_are_read_and_noted(
    of_study: dict[str, Any], of_trial: dict[str, Any], fail: bool
) -> None:
    study = optuna.create_study()
    for key, value in of_study.items():
        study.set_user_attr(key, value)
    for _ in range(2):
        trial = study.ask()
        for key, value in of_trial.items():
            trial.set_user_attr(key, value)
        study.tell(trial, state=optuna.trial.TrialState.FAIL) if fail else study.tell(trial, 1.0)
    record = read(study)
    assert study_note(record).startswith("### How is")
    assert [trial_note(record, t).startswith(f"### Trial {t.number}") for t in record.trials] == [
        True,
        True,
    ]
