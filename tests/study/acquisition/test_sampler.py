from collections.abc import Callable
from typing import Any

import optuna
import pytest

from autosplit.cuts import cuts_of
from autosplit.errors import ConfigError, SplitError
from autosplit.hardware.bench.interface import deployed
from autosplit.hardware.bench.simulated import SimulatedBench
from autosplit.planner import plan
from autosplit.study.acquisition.sampler import SAMPLERS, SplitSampler
from autosplit.study.documents import measured_document
from autosplit.study.record import RECORD, result_of, update
from autosplit.study.space.search_space import Space
from autosplit.study.storage import silence_optuna_logs

Make = Callable[..., SimulatedBench]
silence_optuna_logs()


def new_study() -> optuna.Study:
    return optuna.create_study(sampler=optuna.samplers.RandomSampler())


def search(
    bench: SimulatedBench, name: str, trials: int, study: optuna.Study | None = None, seed: int = 0
) -> optuna.Study:
    """Ask for splits and measure them, without the loop around."""
    space = Space(bench.costs, len(bench.devices))
    study = study or new_study()
    splits = SplitSampler(name, space, seed)
    for _ in range(trials):
        trial = study.ask()
        stages = splits.assign(study, trial)
        assert stages is not None
        measurement = bench.measure(deployed(bench, stages))
        update(trial, **measured_document(measurement))
        study.tell(trial.number, measurement.period_ms.median)
    return study


def keys(study: optuna.Study) -> list[Any]:
    return [result_of(t).key for t in study.trials]


@pytest.fixture
def small(chain_bench: Make) -> tuple[Space, SplitSampler]:
    bench = chain_bench(ops=12, stages=2)
    space = Space(bench.costs, 2)
    return space, SplitSampler("planner", space)


@pytest.mark.parametrize("name", SAMPLERS)
def test_no_split_is_proposed_twice_and_each_is_legal(branchy_bench: Make, name: str) -> None:
    bench = branchy_bench(blocks=2, branches=3, stages=2)
    space = Space(bench.costs, 2)
    proposed = keys(search(bench, name, 20))
    assert len(set(proposed)) == 20
    assert all(cuts_of(bench.graph, space.split(key)) for key in proposed)


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_split_is_proposed_before_none_is_left(chain_bench: Make, name: str) -> None:
    bench = chain_bench(ops=5, stages=3)
    space = Space(bench.costs, 3)
    study = search(bench, name, 6)
    assert sorted(keys(study)) == sorted(map(space.key, space.listed))
    assert SplitSampler(name, space).assign(study, study.ask()) is None
    assert keys(study)[-1] == ""


@pytest.mark.parametrize("name", ["planner", "tpe", "exhaustive"])
def test_the_first_proposal_is_the_plan(branchy_bench: Make, name: str) -> None:
    bench = branchy_bench()
    space = Space(bench.costs, 3)
    assert keys(search(bench, name, 1)) == [space.key(plan(bench.costs, 3).stages)]


@pytest.mark.parametrize("name", SAMPLERS)
def test_seed_and_history_decide_whatever_process_asks(branchy_bench: Make, name: str) -> None:
    bench = branchy_bench(blocks=2, branches=2, stages=2)
    whole = search(bench, name, 9)
    resumed = search(bench, name, 5, search(bench, name, 4))
    assert keys(resumed) == keys(whole)


def test_another_seed_is_another_search(branchy_bench: Make) -> None:
    bench = branchy_bench()
    assert keys(search(bench, "random", 5, seed=1)) != keys(search(bench, "random", 5, seed=2))


def test_a_failed_split_is_not_proposed_again_and_a_lost_one_is(
    small: tuple[Space, SplitSampler],
) -> None:
    _, splits = small
    study = new_study()
    for record in ({"error": "broken"}, {"error": "interrupted", "lost": True}, {}):
        trial = study.ask()
        splits.assign(study, trial)
        update(trial, **record)
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    first, second, third = keys(study)
    assert first != second == third


def test_a_split_that_another_worker_measures_is_left_to_it(
    small: tuple[Space, SplitSampler],
) -> None:
    _, splits = small
    study = new_study()
    for _ in range(11):
        splits.assign(study, study.ask())
    assert len(set(keys(study))) == 11


def test_of_two_workers_that_choose_alike_not_both_keep_it(
    small: tuple[Space, SplitSampler], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, splits = small
    study = new_study()
    write = optuna.storages.InMemoryStorage.set_trial_user_attr
    rivals: list[int] = []

    def rival_writes_first(storage: Any, trial_id: int, key: str, value: Any) -> None:
        """Between the choice and its record another worker records the same choice."""
        if value.get("key") and not rivals:
            rivals.append(study.ask().number)
            write(storage, rivals[0], key, value)
        write(storage, trial_id, key, value)

    monkeypatch.setattr(optuna.storages.InMemoryStorage, "set_trial_user_attr", rival_writes_first)
    splits.assign(study, study.ask())
    mine, rival = keys(study)
    assert mine
    assert mine != rival


def test_an_enqueued_split_is_measured_as_it_is(small: tuple[Space, SplitSampler]) -> None:
    space, splits = small
    study = new_study()
    study.enqueue_trial({}, user_attrs={RECORD: {"key": space.key(space.listed[-1])}})
    study.enqueue_trial(space.parameters(space.listed[-2]))
    for stages in (space.listed[-1], space.listed[-2]):
        assert splits.assign(study, study.ask()) == stages
    assert keys(study) == [space.key(space.listed[-1]), space.key(space.listed[-2])]


def test_an_enqueued_key_that_is_no_split_is_refused(small: tuple[Space, SplitSampler]) -> None:
    _, splits = small
    study = new_study()
    study.enqueue_trial({}, user_attrs={RECORD: {"key": "2:zz"}})
    with pytest.raises(SplitError):
        splits.assign(study, study.ask())


def test_the_parameters_say_where_the_cuts_lie(chain_bench: Make) -> None:
    bench = chain_bench(ops=12, stages=3)
    space = Space(bench.costs, 3)
    trial = search(bench, "planner", 1).trials[0]
    assert trial.params == space.parameters(space.split(result_of(trial).key))
    assert 0 < trial.params["cut_1"] < trial.params["cut_2"] < 1


def test_an_unknown_sampler_is_named(chain_bench: Make) -> None:
    with pytest.raises(ConfigError, match="'annealing'"):
        SplitSampler("annealing", Space(chain_bench().costs, 3))
