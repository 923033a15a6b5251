"""Splits of a space in which runtimes compete for each stage."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import optuna
import pytest

from autosplit.errors import SplitError
from autosplit.planner import CostModel
from autosplit.study.acquisition.candidate_sources import AllSplits
from autosplit.study.acquisition.expected_improvement import Outlook
from autosplit.study.acquisition.history import History, history_of
from autosplit.study.acquisition.sampler import SAMPLERS, sampler
from autosplit.study.persistence.records import KEY
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
    study, keys = optuna.create_study(), Counter[str]()
    chooser = sampler(name, space, CORES)
    for _ in range(5):
        trial = study.ask()
        frozen = study.get_trials(deepcopy=False)[trial.number]
        stages = chooser.assign(study, frozen)
        if stages is None:
            break
        key = study.trials[trial.number].user_attrs[KEY]
        keys[key] += 1
        loads = space.evaluate(stages, space.costs.in_runtimes(space.runtimes_of(key))).loads
        trial.set_user_attr("stage_ms", list(loads))
        study.tell(trial, max(loads))
    assert {*space.keys_in_one_runtime} <= keys.keys()
    assert max(keys.values()) == 1
    known = history_of(space, study.get_trials())
    assert all(len(m.runtimes) == 2 for m in known.measured)


def test_a_split_is_tried_again_where_another_runtime_turns_out_faster() -> None:
    space = Space(costs_of({"first": (1.0,) * 4, "second": (1.1,) * 4}), 2)
    slow = Measured(0, HALVES, (3.0, 3.0), 3.0, runtimes=("first", "first"))
    corrected = correct(space.costs, CORES, [slow])
    view = Outlook(space, History(), corrected, (), AllSplits(space))
    assert space.key(HALVES) == "2:3:first,first"
    assert space.key(HALVES, corrected.contention_costs) == "2:3:second,second"
    assert replace(view, history=History(frozenset({"2:3:first,first"}))).is_free(HALVES)
    assert not replace(view, history=History(frozenset({"2:3:second,second"}))).is_free(HALVES)


def test_a_measured_stage_corrects_the_costs_of_its_runtime_most(space: Space) -> None:
    measured = Measured(0, HALVES, (4.0, 2.0), 4.0, runtimes=("front", "back"))
    front, back = correct(space.costs, CORES, [measured]).costs.runtimes
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
    assert several.costs.times == single.costs.times
    assert several.costs.overheads == single.costs.overheads
