"""Trials whose worker ended: taken over, freed, released."""

from __future__ import annotations

from typing import Any

import optuna
import pytest

from autosplit.study.persistence.optuna_internals import next_trial
from autosplit.study.persistence.records import LOST
from autosplit.study.trials import recovery as recoveries
from autosplit.study.trials.recovery import DEATHS_LIMIT, UNCLAIMED, Recovery
from autosplit.study.trials.worker_identity import this_worker
from autosplit.study.trials.writer import TrialWriter
from tests.study.recording import Notes

DEAD = {**this_worker(), "start": "0.00"}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def recovery_of(study: optuna.Study, is_locked: bool = True, lease: float = 8.0) -> Recovery:
    notes = Notes()
    return Recovery(study, notes, TrialWriter(study, notes), is_locked, lease, Clock())


@pytest.fixture
def recovery(memory_study: optuna.Study) -> Recovery:
    return recovery_of(memory_study)


def notes(recovery: Recovery) -> list[str]:
    assert isinstance(recovery.progress, Notes)
    return recovery.progress.notes


def start(study: optuna.Study, worker: Any = None) -> int:
    trial = study.ask()
    if worker is not None:
        trial.set_user_attr("worker", worker)
    return trial.number


def stale(recovery: Recovery) -> list[int]:
    return [t.number for t in recovery.stale_trials(recovery.study.trials)]


def test_only_a_running_trial_of_a_dead_worker_is_stale(recovery: Recovery) -> None:
    for worker in (this_worker(), DEAD, {**DEAD, "host": "elsewhere"}, None):
        start(recovery.study, worker)
    recovery.study.tell(start(recovery.study, DEAD), 1.0)
    assert stale(recovery) == [1, 3]


def test_without_a_lock_a_trial_that_names_no_worker_is_watched_first(
    memory_study: optuna.Study,
) -> None:
    recovery = recovery_of(memory_study, is_locked=False)
    start(memory_study)
    assert stale(recovery) == []
    assert recovery.is_watching
    recovery.clock.now = UNCLAIMED - 1  # type: ignore[attr-defined]
    assert stale(recovery) == []
    recovery.clock.now = UNCLAIMED  # type: ignore[attr-defined]
    assert stale(recovery) == [0]


def test_taking_a_trial_over_renews_its_heartbeat(
    recovery: Recovery, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded: list[int] = []
    monkeypatch.setattr(recoveries, "record_heartbeat", lambda _, t: recorded.append(t.number))
    assert recovery.take_over(next_trial(recovery.study))
    assert recorded == [0]


def test_a_split_that_kills_too_many_workers_fails(recovery: Recovery) -> None:
    study = recovery.study
    start(study, DEAD)
    for deaths in range(1, DEATHS_LIMIT):
        assert recovery.take_over(study.trials[0])
        assert study.trials[0].user_attrs == {"worker": this_worker(), "deaths": deaths}
    assert len(notes(recovery)) == DEATHS_LIMIT - 1
    assert not recovery.take_over(study.trials[0])
    assert study.trials[0].state.name == "FAIL"
    assert LOST not in study.trials[0].user_attrs


@pytest.mark.parametrize(
    ("worker", "name"),
    [({"host": "far", "pid": 7, "start": "x"}, "process 7 on far"), (None, "its worker"), (3, "")],
)
def test_a_silent_worker_is_named_and_its_split_is_free(
    recovery: Recovery, monkeypatch: pytest.MonkeyPatch, worker: Any, name: str
) -> None:
    study = recovery.study
    for _ in range(2):
        start(study, worker)
    monkeypatch.setattr(recoveries.SilenceWatch, "silent_trials", lambda _: frozenset({1}))
    assert recovery.free_silent_trials()
    assert [t.state.name for t in study.trials] == ["RUNNING", "FAIL"]
    assert name in study.trials[1].user_attrs["error"]
    assert study.trials[1].user_attrs[LOST] is True
    assert len(notes(recovery)) == 1


@pytest.mark.parametrize("silent", [{0}, set()])
def test_a_finished_trial_is_not_freed(
    recovery: Recovery, monkeypatch: pytest.MonkeyPatch, silent: set[int]
) -> None:
    recovery.study.tell(start(recovery.study), 1.0)
    monkeypatch.setattr(recoveries.SilenceWatch, "silent_trials", lambda _: frozenset(silent))
    assert not recovery.free_silent_trials()
    assert (recovery.study.trials[0].state.name, notes(recovery)) == ("COMPLETE", [])


def test_without_a_silent_worker_nothing_is_freed(recovery: Recovery) -> None:
    start(recovery.study)
    assert not recovery.free_silent_trials()
    assert recovery.study.trials[0].state.name == "RUNNING"


def test_a_process_that_ends_releases_its_own_trials_alone(recovery: Recovery) -> None:
    study = recovery.study
    start(study, this_worker())
    start(study, {**this_worker(), "pid": 1})
    recovery.release(study.trials, "interrupted")
    assert [t.state.name for t in study.trials] == ["FAIL", "RUNNING"]
    assert study.trials[0].user_attrs["error"] == "interrupted"
    assert study.trials[0].user_attrs[LOST] is True
