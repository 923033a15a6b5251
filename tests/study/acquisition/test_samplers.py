from collections.abc import Callable
from typing import Any

import optuna
import pytest

from autosplit.cuts import cuts_of
from autosplit.errors import ConfigError
from autosplit.hardware.bench.simulated import SimulatedBench
from autosplit.planner import plan
from autosplit.study.acquisition.samplers import NAMES, sampler
from autosplit.study.persistence.storage import quiet
from autosplit.study.space.search_space import KEY, Space

Make = Callable[..., SimulatedBench]
quiet()


def search(
    bench: SimulatedBench, name: str, trials: int, study: optuna.Study | None = None, seed: int = 0
) -> optuna.Study:
    """What a user does who passes a sampler to a study of their own."""
    space = Space(bench.costs, len(bench.devices))

    def objective(trial: optuna.Trial) -> float:
        measurement = bench.measure(space.suggest(trial))
        trial.set_user_attr("stage_ms", list(measurement.stage_ms))
        return measurement.period_ms.median

    study = study or optuna.create_study()
    study.sampler = sampler(name, space, bench.devices, seed)
    study.optimize(objective, n_trials=trials)
    return study


def keys(study: optuna.Study) -> list[Any]:
    return [t.user_attrs[KEY] for t in study.trials]


@pytest.mark.parametrize("name", NAMES)
def test_no_split_is_proposed_twice_and_each_is_legal(branchy_bench: Make, name: str) -> None:
    bench = branchy_bench(blocks=2, branches=3, stages=2)
    space = Space(bench.costs, 2)
    found = keys(search(bench, name, 20))
    assert len(set(found)) == 20
    assert all(cuts_of(bench.graph, space.split(key)) for key in found)


@pytest.mark.parametrize("name", NAMES)
def test_every_split_is_proposed_before_none_is_left(chain_bench: Make, name: str) -> None:
    bench = chain_bench(ops=5, stages=3)
    space = Space(bench.costs, 3)
    study = search(bench, name, 6)
    assert sorted(keys(study)) == sorted(map(space.key, space.listed))
    assert study.ask().study._storage.get_all_trials(study._study_id)[-1].user_attrs[KEY] == ""


@pytest.mark.parametrize("name", ["planner", "tpe", "exhaustive"])
def test_the_first_proposal_is_the_plan(branchy_bench: Make, name: str) -> None:
    bench = branchy_bench()
    space = Space(bench.costs, 3)
    assert keys(search(bench, name, 1)) == [space.key(plan(bench.costs, 3).stages)]


@pytest.mark.parametrize("name", NAMES)
def test_seed_and_history_decide_whatever_process_asks(branchy_bench: Make, name: str) -> None:
    bench = branchy_bench(blocks=2, branches=2, stages=2)
    whole = search(bench, name, 9)
    parted = search(bench, name, 4)
    parted = search(bench, name, 5, parted)
    assert keys(parted) == keys(whole)


def test_another_seed_is_another_search(branchy_bench: Make) -> None:
    bench = branchy_bench()
    assert keys(search(bench, "random", 5, seed=1)) != keys(search(bench, "random", 5, seed=2))


def test_a_failed_split_is_not_proposed_again_and_a_lost_one_is(chain_bench: Make) -> None:
    bench = chain_bench(ops=12, stages=2)
    space = Space(bench.costs, 2)
    study = optuna.create_study(sampler=sampler("planner", space, bench.devices))
    for attributes in ({"error": "broken"}, {"error": "interrupted", "lost": True}):
        trial = study.ask()
        for key, value in attributes.items():
            trial.set_user_attr(key, value)
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
    space.suggest(study.ask())
    first, second, third = keys(study)
    assert first != second == third


def test_a_split_that_another_worker_measures_is_left_to_it(chain_bench: Make) -> None:
    bench = chain_bench(ops=12, stages=2)
    space = Space(bench.costs, 2)
    study = optuna.create_study(sampler=sampler("planner", space, bench.devices))
    for _ in range(11):
        space.suggest(study.ask())
    assert len(set(keys(study))) == 11


def test_of_two_workers_that_choose_alike_not_both_keep_it(
    chain_bench: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = chain_bench(ops=12, stages=2)
    space = Space(bench.costs, 2)
    study = optuna.create_study(sampler=sampler("planner", space, bench.devices))
    write = optuna.storages.InMemoryStorage.set_trial_user_attr
    racing = True

    def rival_writes_first(storage: Any, trial_id: int, key: str, value: Any) -> None:
        nonlocal racing
        if (
            key == KEY and racing
        ):  # between the choice and its record another worker records the same
            racing = False
            rival = storage.create_new_trial(study._study_id)
            write(storage, rival, KEY, value)
        write(storage, trial_id, key, value)

    monkeypatch.setattr(optuna.storages.InMemoryStorage, "set_trial_user_attr", rival_writes_first)
    study.ask()
    mine, rival = keys(study)
    assert mine
    assert mine != rival


def test_a_sampler_of_optuna_itself_finds_legal_splits(chain_bench: Make) -> None:
    bench = chain_bench(ops=12, stages=3)
    space = Space(bench.costs, 3)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(lambda trial: bench.measure(space.suggest(trial)).period_ms.median, n_trials=5)
    assert all(cuts_of(bench.graph, space.split(key)) for key in keys(study))


def test_an_enqueued_split_is_measured_as_it_is(chain_bench: Make) -> None:
    bench = chain_bench(ops=12, stages=2)
    space = Space(bench.costs, 2)
    wanted = space.listed[-1]
    study = optuna.create_study(sampler=sampler("planner", space, bench.devices))
    study.enqueue_trial({}, user_attrs={KEY: space.key(wanted)})
    assert space.suggest(study.ask()) == wanted
    study.enqueue_trial(space.parameters(space.listed[-2]))
    assert space.suggest(study.ask()) == space.listed[-2]


def test_the_parameters_tell_where_the_cuts_lie(chain_bench: Make) -> None:
    bench = chain_bench(ops=12, stages=3)
    space = Space(bench.costs, 3)
    trial = search(bench, "planner", 1).trials[0]
    assert trial.params == space.parameters(space.split(trial.user_attrs[KEY]))
    assert 0 < trial.params["cut_1"] < trial.params["cut_2"] < 1


def test_an_unknown_sampler_is_named(chain_bench: Make) -> None:
    with pytest.raises(ConfigError, match="'annealing'; use one of planner"):
        sampler("annealing", Space(chain_bench().costs, 3), [])
