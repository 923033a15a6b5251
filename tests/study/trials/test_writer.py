"""Trials that end without a result of their own: told by another, given up, taken over, released."""

from __future__ import annotations

import datetime
from typing import Any

import optuna
import pytest

from autosplit.study.acquisition.samplers import LOST
from autosplit.study.persistence.storage import quiet
from autosplit.study.trials import recovery as room
from autosplit.study.trials.recovery import DEATHS, Lost
from autosplit.study.trials.worker_identity import this_worker
from autosplit.study.trials.writer import LOG, Teller


class Notes:
    """A progress that keeps what it was told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def trial(self, status: object) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def study() -> optuna.Study:
    quiet()
    return optuna.create_study()


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def teller(study: optuna.Study, notes: Notes) -> Teller:
    return Teller(study, notes)  # type: ignore[arg-type]


@pytest.fixture
def lost(study: optuna.Study, notes: Notes, teller: Teller) -> Lost:
    return Lost(study, notes, teller, locked=True)  # type: ignore[arg-type]


def dead() -> dict[str, Any]:
    return {**this_worker(), "start": "long ago"}


def test_a_failed_trial_keeps_its_reason_and_the_end_of_the_log(
    study: optuna.Study, teller: Teller
) -> None:
    trial = study.ask()
    teller.fail(trial._trial_id, trial.number, "no memory", log="a" * LOG + "end")
    (found,) = study.trials
    assert (found.state.name, found.user_attrs["error"]) == ("FAIL", "no memory")
    assert len(found.user_attrs["log"]) == LOG
    assert found.user_attrs["log"].endswith("aend")
    assert LOST not in found.user_attrs


def test_a_trial_that_is_lost_says_so_and_has_no_log(study: optuna.Study, teller: Teller) -> None:
    trial = study.ask()
    teller.fail(trial._trial_id, trial.number, "gone", lost=True)
    assert study.trials[0].user_attrs == {"error": "gone", LOST: True}


def test_a_result_is_stored_with_its_values(
    study: optuna.Study, teller: Teller, notes: Notes
) -> None:
    trial = study.ask()
    teller.tell(trial._trial_id, trial.number, {"a": 1}, [2.5])
    assert (study.trials[0].state.name, study.trials[0].values, study.trials[0].user_attrs) == (
        "COMPLETE",
        [2.5],
        {"a": 1},
    )
    assert notes.notes == []


def test_a_trial_that_another_finished_keeps_what_that_one_said(
    study: optuna.Study, teller: Teller, notes: Notes
) -> None:
    trial = study.ask()
    study.tell(trial.number, 1.0)
    teller.tell(trial._trial_id, trial.number, {"a": 1}, [2.5])
    assert (study.trials[0].values, study.trials[0].user_attrs) == ([1.0], {})
    assert notes.notes == ["trial 0: another worker finished it meanwhile; this result is dropped"]


def test_a_result_without_attributes_is_dropped_alike(
    study: optuna.Study, teller: Teller, notes: Notes
) -> None:
    trial = study.ask()
    study.tell(trial.number, 1.0)
    teller.tell(trial._trial_id, trial.number, {}, [2.5])
    assert (study.trials[0].values, len(notes.notes)) == ([1.0], 1)


def test_a_result_that_cannot_be_told_is_no_matter_of_another_worker(
    study: optuna.Study, teller: Teller
) -> None:
    trial = study.ask()
    with pytest.raises(ValueError, match="number of"):
        teller.tell(trial._trial_id, trial.number, {}, [1.0, 2.0])


def test_only_a_trial_of_a_dead_worker_is_an_orphan(study: optuna.Study, lost: Lost) -> None:
    for worker in (this_worker(), dead(), {**dead(), "host": "elsewhere"}, None):
        trial = study.ask()
        if worker is not None:
            trial.set_user_attr("worker", worker)
    study.ask().set_user_attr("worker", dead())
    study.tell(4, 1.0)
    assert [t.number for t in lost.orphans(study.trials)] == [1, 3]


@pytest.mark.parametrize(("age", "orphans"), [(59.0, 0), (60.5, 1), (None, 1)])
def test_without_a_lock_a_trial_that_names_no_worker_has_a_minute(
    study: optuna.Study,
    teller: Teller,
    notes: Notes,
    monkeypatch: pytest.MonkeyPatch,
    age: float | None,
    orphans: int,
) -> None:
    study.ask()
    (trial,) = study.trials
    trial.datetime_start = (
        None if age is None else datetime.datetime.now() - datetime.timedelta(seconds=age)
    )
    unlocked = Lost(study, notes, teller, locked=False)  # type: ignore[arg-type]
    assert len(list(unlocked.orphans([trial]))) == orphans


def test_who_takes_a_trial_over_renews_its_lease(
    study: optuna.Study, lost: Lost, monkeypatch: pytest.MonkeyPatch
) -> None:
    beats: list[int] = []
    monkeypatch.setattr(room.leases, "beat", lambda study, trial_id: beats.append(trial_id))
    trial = study.ask()
    assert lost.adopt(study.trials[0])
    assert beats == [trial._trial_id]


def test_a_trial_is_taken_over_with_its_deaths_counted_until_they_are_too_many(
    study: optuna.Study, lost: Lost, notes: Notes
) -> None:
    study.ask().set_user_attr("worker", dead())
    for deaths in range(1, DEATHS):
        assert lost.adopt(study.trials[0])
        assert study.trials[0].user_attrs == {"worker": this_worker(), "deaths": deaths}
    assert notes.notes == ["trial 0: its worker died; measuring it again"] * (DEATHS - 1)
    assert not lost.adopt(study.trials[0])
    assert study.trials[0].state.name == "FAIL"
    assert (
        study.trials[0].user_attrs["error"]
        == f"the process died {DEATHS} times while measuring this split"
    )
    assert LOST not in study.trials[0].user_attrs


@pytest.mark.parametrize(
    ("worker", "who"),
    [
        ({"host": "far", "pid": 7, "start": "x"}, "process 7 on far"),
        (None, "its worker"),
        (3, "its worker"),
    ],
)
def test_who_is_silent_for_longer_than_its_lease_is_named_and_its_split_is_free(
    study: optuna.Study,
    lost: Lost,
    notes: Notes,
    monkeypatch: pytest.MonkeyPatch,
    worker: Any,
    who: str,
) -> None:
    for _ in range(2):
        study.ask().set_user_attr("worker", worker)
    monkeypatch.setattr(room.leases, "lapsed", lambda study: frozenset({study.trials[1]._trial_id}))
    assert lost.reap()
    assert [t.state.name for t in study.trials] == ["RUNNING", "FAIL"]
    assert study.trials[1].user_attrs["error"] == f"{who} was silent for longer than its lease"
    assert study.trials[1].user_attrs[LOST] is True
    assert notes.notes == [
        f"trial 1: {who} was silent for longer than its lease; its split is free again"
    ]


def test_nobody_silent_is_nothing_to_give_up(study: optuna.Study, lost: Lost) -> None:
    study.ask()
    assert not lost.reap()
    assert study.trials[0].state.name == "RUNNING"


def test_a_process_that_ends_frees_its_own_trials_alone(study: optuna.Study, lost: Lost) -> None:
    study.ask().set_user_attr("worker", this_worker())
    study.ask().set_user_attr("worker", {**this_worker(), "pid": 1})
    lost.release(study.trials, "interrupted")
    assert [t.state.name for t in study.trials] == ["FAIL", "RUNNING"]
    assert study.trials[0].user_attrs == {
        "worker": this_worker(),
        "error": "interrupted",
        LOST: True,
    }


@pytest.mark.parametrize("silent", [True, False])
def test_a_trial_that_is_over_is_not_given_up(
    study: optuna.Study, lost: Lost, notes: Notes, monkeypatch: pytest.MonkeyPatch, silent: bool
) -> None:
    study.ask()
    study.tell(0, 1.0)
    monkeypatch.setattr(
        room.leases,
        "lapsed",
        lambda study: frozenset({study.trials[0]._trial_id} if silent else ()),
    )
    assert not lost.reap()
    assert (study.trials[0].state.name, notes.notes) == ("COMPLETE", [])
