"""Splits of a space in which runtimes compete for each stage."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import optuna
import pytest

from autosplit.errors import SplitError
from autosplit.planner import CostModel, plan_deployment
from autosplit.study.acquisition.candidate_sources import PlannedSpace
from autosplit.study.acquisition.expected_improvement import Outlook
from autosplit.study.acquisition.history import History, history_of
from autosplit.study.acquisition.sampler import SAMPLERS, SplitSampler
from autosplit.study.record import result_of, update
from autosplit.study.space.deployment_space import DeploymentSpace
from autosplit.study.space.search_space import Space
from autosplit.study.surrogate.cost_correction import Measured, correct

CORES = ("cores:0", "cores:1")
# The first is quick at the ops in front, the second at those behind.
TIMES = {"front": (1.0, 1.0, 3.0, 3.0), "back": (3.0, 3.0, 1.0, 1.0)}
HALVES = ((0, 1), (2, 3))


def costs_of(times: dict[str, tuple[float, ...]]) -> CostModel:
    names = ("a", "b", "c", "d")
    models = {n: CostModel("c", names, (0, 1, 2, 4), (row,)) for n, row in times.items()}
    return CostModel.of_runtimes(models)


@pytest.fixture
def space() -> Space:
    return Space(costs_of(TIMES), 2)


def test_the_key_names_the_runtime_of_each_stage(space: Space) -> None:
    key = space.key(HALVES)
    assert key == "2:3:front,back"
    assert (space.split(key), space.runtimes_of(key)) == (HALVES, ("front", "back"))


def test_the_costs_at_hand_choose_the_runtimes_of_a_key(space: Space) -> None:
    slow_front = costs_of({"front": (9.0, 9.0, 9.0, 9.0), "back": TIMES["back"]})
    assert space.key(HALVES, slow_front) == "2:3:back,back"


def test_a_key_without_runtimes_has_those_of_the_profile(space: Space) -> None:
    assert space.runtimes_of("2:3") == ("front", "back")


@pytest.mark.parametrize("key", ["2:3:front", "2:3:front,other", "2:3:front,back,back"])
def test_a_key_needs_a_known_runtime_for_each_stage(space: Space, key: str) -> None:
    with pytest.raises(SplitError, match="runtime for each stage"):
        space.runtimes_of(key)


def test_with_one_runtime_a_key_names_none() -> None:
    alone = Space(costs_of(TIMES).in_runtime("front"), 2)
    assert alone.key(HALVES) == "2:3"
    assert alone.runtimes_of("2:3") == ()


def test_the_best_split_of_each_runtime_is_a_candidate() -> None:
    space = Space(costs_of({**TIMES, "hopeless": (50.0,) * 4}), 2)
    assert space.keys_in_one_runtime == ("2:7:front,front", "2:1:back,back")


@pytest.mark.parametrize("name", sorted(set(SAMPLERS) - {"tpe"}))
def test_no_split_is_tried_twice_in_the_same_runtimes(space: Space, name: str) -> None:
    study = searched(space, name, space.costs, trials=5)
    keys = Counter(result_of(trial).key for trial in study.trials if trial.value is not None)
    assert {*space.keys_in_one_runtime} <= keys.keys()
    assert max(keys.values()) == 1
    known = history_of(space, study.get_trials())
    assert all(len(m.runtimes) == 2 for m in known.measured)


def searched(space: Any, name: str, truth: CostModel, trials: int) -> optuna.Study:
    """A study whose trials take as long as ``truth`` says."""
    study, chooser = optuna.create_study(), SplitSampler(name, space)
    for _ in range(trials):
        trial = study.ask()
        candidate = chooser.assign(study, trial)
        if candidate is None:
            break
        runtimes = space.runtimes_of(result_of(study.trials[trial.number]).key)
        plan = space.evaluate(candidate, truth.in_runtimes(runtimes))
        update(trial, stage_ms=list(plan.loads), period_ms={"median": plan.period})
        study.tell(trial, plan.period)
    return study


def test_runtimes_and_cores_are_searched_together() -> None:
    threads = {name: (row, tuple(t / 1.6 for t in row)) for name, row in TIMES.items()}
    models = {n: CostModel("c", tuple("abcd"), (0, 1, 2, 4), rows) for n, rows in threads.items()}
    profiled = CostModel.of_runtimes(models)
    # The runtime that is slow at the ops behind is twice as fast there as its profile says.
    fast = replace(models["front"], times=((1.0, 1.0, 0.5, 0.5), (0.7, 0.7, 0.4, 0.4)))
    truth = CostModel.of_runtimes({**models, "front": fast})
    space = DeploymentSpace(profiled, ((0, 1, 2),), (1, 2), "front")
    study = searched(space, "planner", truth, trials=6)
    assert space.plan().replicas != (3,)
    assert study.best_value == pytest.approx(plan_deployment(truth, 3, thread_counts=(1, 2)).period)
    assert result_of(study.best_trial).key == "1:@3x1:front"


def test_a_split_is_tried_again_where_another_runtime_turns_out_faster() -> None:
    space = Space(costs_of({"first": (1.0,) * 4, "second": (1.1,) * 4}), 2)
    slow = Measured(0, HALVES, (3.0, 3.0), 3.0, runtimes=("first", "first"))
    corrected = correct(space.costs, CORES, [slow])
    view = Outlook(space, History(), corrected, (), PlannedSpace(space))
    assert space.key(HALVES) == "2:3:first,first"
    assert space.key(HALVES, corrected.contention_costs) == "2:3:second,second"
    assert replace(view, history=History(frozenset({"2:3:first,first"}))).is_free(HALVES)
    assert not replace(view, history=History(frozenset({"2:3:second,second"}))).is_free(HALVES)


def test_a_measured_stage_corrects_the_costs_of_its_runtime_most(space: Space) -> None:
    measured = Measured(0, HALVES, (4.0, 2.0), 4.0, runtimes=("front", "back"))
    front, back = correct(space.costs, CORES, [measured]).contention_costs.all_busy.runtimes
    assert front.times[0][0] > 1.3
    assert back.times[0][0] / 3.0 < front.times[0][0]
    assert correct(space.costs, CORES, [measured]).period(HALVES, ("front", "back")) > 2.5


def test_one_competing_runtime_is_corrected_as_a_runtime_alone() -> None:
    alone = costs_of(TIMES).in_runtime("front")
    competing = replace(alone, runtimes=costs_of(TIMES).runtimes[:1])
    trial: dict[str, Any] = {"number": 0, "stages": HALVES, "stage_ms": (3.0, 5.0)}
    single = correct(alone, CORES, [Measured(**trial, period_ms=5.0)])
    several = correct(
        competing, CORES, [Measured(**trial, period_ms=5.0, runtimes=("front", "front"))]
    )
    assert several.contention_costs.all_busy.times == single.contention_costs.all_busy.times
    assert several.contention_costs.all_busy.overheads == single.contention_costs.all_busy.overheads
