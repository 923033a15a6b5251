"""What becomes of a trial is written once, by the worker that finishes it first."""

from __future__ import annotations

import math

import optuna
import pytest

from autosplit.study.persistence.optuna_internals import next_trial
from autosplit.study.persistence.records import LOST
from autosplit.study.trials.writer import LOG_LIMIT, TrialWriter
from tests.study.recording import Notes


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def writer(memory_study: optuna.Study, notes: Notes) -> TrialWriter:
    return TrialWriter(memory_study, notes)


def test_a_failed_trial_has_its_reason_and_the_end_of_the_log(writer: TrialWriter) -> None:
    writer.fail(next_trial(writer.study), "no memory", log="a" * LOG_LIMIT + "end")
    (trial,) = writer.study.trials
    assert trial.state.name == "FAIL"
    assert trial.user_attrs == {"error": "no memory", "log": "a" * (LOG_LIMIT - 3) + "end"}


def test_a_lost_trial_is_marked(writer: TrialWriter) -> None:
    writer.fail(next_trial(writer.study), "gone", lost=True)
    assert writer.study.trials[0].user_attrs == {"error": "gone", LOST: True}


def test_a_result_is_stored_with_its_values(writer: TrialWriter, notes: Notes) -> None:
    writer.finish(next_trial(writer.study), {"a": 1}, 2.5)
    (trial,) = writer.study.trials
    assert (trial.state.name, trial.values, trial.user_attrs) == ("COMPLETE", [2.5], {"a": 1})
    assert notes.notes == []


@pytest.mark.parametrize("attributes", [{"a": 1}, {}])
def test_a_trial_that_another_worker_finished_keeps_its_result(
    writer: TrialWriter, notes: Notes, attributes: dict[str, int]
) -> None:
    trial = next_trial(writer.study)
    writer.study.tell(trial.number, 1.0)
    writer.finish(trial, attributes, 2.5)
    assert (writer.study.trials[0].values, writer.study.trials[0].user_attrs) == ([1.0], {})
    assert len(notes.notes) == 1


def test_a_result_that_cannot_be_written_is_an_error(writer: TrialWriter) -> None:
    with pytest.raises(ValueError, match="nan"):
        writer.finish(next_trial(writer.study), {}, math.nan)
