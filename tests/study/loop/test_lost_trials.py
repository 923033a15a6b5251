"""Trials of workers that died, were silent or lost the storage, and trials that several want."""

import time
from unittest.mock import Mock

import optuna
import pytest

from autosplit.study.loop import run as loops
from autosplit.study.loop.run import StudyLoop, run_study
from autosplit.study.record import record_of, update
from autosplit.study.results import DEATHS_LIMIT, error_of, state_of, tally
from autosplit.study.sampler import Assignment
from autosplit.study.workers import free_lost_trials, this_worker
from tests.study.conftest import chain_bench, keys, states

DEAD = {**this_worker(), "start": "0.00"}
ELSEWHERE = {"host": "elsewhere", "pid": 1, "start": "x"}


def claim(opened, **record):
    trial = opened.study.ask()
    if record:
        update(trial, **record)
    return trial


@pytest.mark.parametrize("has_chosen", [True, False])
def test_a_worker_that_died_leaves_its_candidate_to_the_next(new_study, ran, has_chosen):
    whole = ran(chain_bench(), name="whole", trials=3)
    notes = []
    opened = new_study(chain_bench(), name="died", trials=3, notify=notes.append)
    claim(opened, worker=DEAD, **({"key": keys(whole)[0]} if has_chosen else {}))
    run_study(opened)
    assert keys(opened) == keys(whole)
    assert state_of(opened.study.trials[0]) == "interrupted"
    assert states(opened) == ["FAIL", *["COMPLETE"] * 3]
    assert any("its candidate is free again" in note for note in notes)


def test_a_candidate_that_kills_again_and_again_fails(new_study):
    opened, notes = new_study(chain_bench(), trials=2), []
    claim(opened, worker=DEAD, key=opened.space.key(opened.space.plan.stages))
    for _ in range(DEATHS_LIMIT - 1):
        free_lost_trials(opened.study, notes.append)
        update(opened.study.ask(), worker=DEAD)
    assert all(note.endswith("its candidate is free again") for note in notes)
    run_study(opened)
    assert states(opened) == [*["FAIL"] * DEATHS_LIMIT, "COMPLETE"]
    counted = tally(opened.study.trials).failed
    assert [t.number for t in counted] == [DEATHS_LIMIT - 1]
    assert "died 5 times" in error_of(counted[0])


@pytest.mark.parametrize("is_measured", [True, False])
def test_a_trial_that_another_gives_up_is_left_to_it(new_study, is_measured):
    notes = []
    opened = new_study(chain_bench(), trials=3, notify=notes.append)
    holder, name = (opened.bench, "measure") if is_measured else (opened.study, "ask")
    call = getattr(holder, name)

    def reaped_after(*arguments):
        result = call(*arguments)
        if len(opened.study.trials) == 1:
            opened.study.tell(0, state=optuna.trial.TrialState.FAIL)
        return result

    setattr(holder, name, reaped_after)
    run_study(opened)
    assert states(opened) == ["FAIL", *["COMPLETE"] * 3]
    assert any("another worker finished it first" in note for note in notes)


def test_brute_force_outlives_the_trial_of_a_dead_worker(new_study):
    opened = new_study(chain_bench(), trials=3, sampler="brute_force", converge=False)
    loop = StudyLoop(opened, time.monotonic)
    assert loop._run_trial()
    claim(opened, worker=DEAD)
    assert loop.run() == "stopped: 3 trials (limit)"


def test_a_storage_that_breaks_on_the_way_out_hides_no_interruption(new_study, monkeypatch):
    opened = new_study(chain_bench())
    broken = Mock(side_effect=optuna.exceptions.StorageInternalError("disk full"))

    def interrupted(_):
        monkeypatch.setattr(optuna.storages.RDBStorage, "set_trial_user_attr", broken)
        monkeypatch.setattr(optuna.storages.RDBStorage, "set_trial_state_values", broken)
        raise KeyboardInterrupt

    opened.bench.measure = interrupted
    with pytest.raises(KeyboardInterrupt):
        run_study(opened)


def test_a_trial_that_exceeds_the_limit_is_given_up(new_study, monkeypatch):
    opened = new_study(chain_bench(), trials=2)
    # The others start their trials after this worker has looked.
    looks, look = iter([lambda *_: None]), loops.stop_reason
    monkeypatch.setattr(loops, "stop_reason", lambda *state: next(looks, look)(*state))
    for _ in range(2):
        claim(opened, worker=ELSEWHERE)
    loop = StudyLoop(opened, time.monotonic)
    assert loop.run() == "stopped: 2 trials (limit); other workers measure the last 2"
    assert states(opened) == ["RUNNING", "RUNNING", "FAIL"]
    assert state_of(opened.study.trials[2]) == "interrupted"


def test_a_trial_names_its_worker_from_its_first_moment(new_study):
    study = new_study(chain_bench()).study
    assert record_of(study.ask()).worker == this_worker()
    study.enqueue_trial({"cut_1": 1})
    assert record_of(study.trials[-1]).worker == {}


def test_a_trial_names_its_worker_before_its_candidate_is_planned(new_study, monkeypatch):
    """Otherwise nobody sees that the worker of a trial that a user enqueued dies."""
    opened, assign = new_study(chain_bench(), trials=1), Assignment.assign
    opened.study.enqueue_trial({"cut_1": 1, "cut_2": 2})

    def planned(assignment, *trial):
        assert record_of(opened.study.trials[0]).worker == this_worker()
        return assign(assignment, *trial)

    monkeypatch.setattr(Assignment, "assign", planned)
    run_study(opened)
    assert states(opened) == ["COMPLETE"]
