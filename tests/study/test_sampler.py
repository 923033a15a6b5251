from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest

from autosplit.study.acquisition import Acquisition, Goal, acquisition
from autosplit.study.history import History
from autosplit.study.loop.run import run_study
from autosplit.study.record import RECORD, record_of, update
from autosplit.study.sampler import OTHERS, PLANNER, PlannerSampler
from tests.study.conftest import chain_bench, keys, space_of, states, stopped


@pytest.mark.parametrize("name", [PLANNER, *sorted(OTHERS.keys() - {"gp"})])
def test_every_sampler_measures_a_small_space_whole_and_each_candidate_once(name, ran):
    opened = ran(chain_bench(ops=4, noise=0.3), trials=50, sampler=name)
    assert states(opened) == ["COMPLETE"] * 3
    assert len(set(keys(opened))) == 3
    assert stopped(opened).startswith(("exhausted", "converged"))
    for trial in opened.study.trials:
        stages = opened.space.candidate(record_of(trial).key)
        assert set(trial.params) == set(opened.space.moves.names(len(stages)))


def test_an_enqueued_candidate_is_measured(new_study):
    opened = new_study(chain_bench(ops=12), trials=3)
    candidate = opened.space.moves.decode({"cut_1": 1, "cut_2": 2})
    opened.study.enqueue_trial({"cut_1": 1, "cut_2": 2})
    opened.study.enqueue_trial({}, user_attrs={RECORD: {"key": "3:1.2"}})
    opened.study.enqueue_trial({"cut_1": "x"})
    run_study(opened)
    first, second, third = opened.study.trials[:3]
    assert record_of(third).error.startswith("enqueued parameters are of no candidate")
    assert opened.space.candidate(record_of(first).key) == candidate
    assert second.state.name == "FAIL"
    assert "is not the key of a candidate" in record_of(second).error


def test_a_candidate_that_was_chosen_before_it_is_enqueued_again_is_measured_once(ran):
    """A worker may choose what a dead one left between its loss and its return to the queue."""
    opened = ran(chain_bench(ops=12), trials=1)
    key = record_of(opened.study.trials[0]).key
    opened.study.enqueue_trial({}, user_attrs={RECORD: {"key": key}})
    opened = ran(chain_bench(ops=12), trials=3, converge=False)
    assert len({record_of(trial).key for trial in opened.study.trials}) == 3


def test_a_finished_trial_is_read_once_for_the_history(ran, monkeypatch):
    read = Mock(wraps=record_of)
    monkeypatch.setattr("autosplit.study.history.record_of", read)
    ran(chain_bench(ops=12), trials=4, converge=False)
    trials = [trial for (trial,), _ in read.call_args_list]
    assert [trial.number for trial in trials if trial.state.is_finished()] == [0, 1, 2, 3]


def test_where_nothing_takes_time_nothing_is_gained():
    space = space_of(chain_bench(ops=4))
    rows = tuple(replace(row, times=(0.0,) * 4) for row in space.costs.rows)
    space = replace(space, costs=replace(space.costs, rows=rows))
    with np.errstate(divide="raise", invalid="raise"):
        assert set(acquisition(space, Goal(), History()).gains.values()) == {0.0}


def test_a_worker_whose_choice_is_always_taken_gives_it_up(new_study, monkeypatch):
    opened, waits = new_study(chain_bench(), trials=9), list[float]()
    first, second, plan = opened.study.ask(), opened.study.ask(), opened.space.plan.stages
    monkeypatch.setattr(Acquisition, "best", plan)
    monkeypatch.setattr("autosplit.study.sampler.time.sleep", waits.append)
    update(first, key=opened.space.key(plan))
    assert opened.assignment.assign(opened.study, second, opened.study.trials) is None
    assert record_of(second).key == ""
    assert sum(waits) < 20


def test_a_claim_is_written_before_those_of_others_are_read(new_study, monkeypatch):
    opened = new_study(chain_bench(), trials=9)
    study, space = opened.study, opened.space
    first, second = study.ask(), study.ask()
    view = PlannerSampler.view
    chosen = {}

    def viewed(sampler, trials, exclude=None):
        promised = view(sampler, trials, exclude)
        if exclude == first.number and not chosen:  # the rival chooses alike before this one claims
            chosen[second.number] = None
            chosen[second.number] = opened.assignment.assign(study, second, study.trials)
        return promised

    monkeypatch.setattr(PlannerSampler, "view", viewed)
    chosen[first.number] = opened.assignment.assign(study, first, study.trials)
    assert None not in chosen.values()
    assert chosen[first.number] != chosen[second.number] == space.plan.stages
