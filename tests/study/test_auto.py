"""``stages = "auto"``: any number of stages up to the devices."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosplit.cli import main
from autosplit.errors import Infeasible, SplitError
from autosplit.hardware.bench.simulated import SimulatedBench
from autosplit.planner import CostModel, plan
from autosplit.planner.placement.canonical import CanonicalPlacement, largest_stages
from autosplit.planner.problem.contention import ContentionCosts
from autosplit.report.documents.study import document
from autosplit.study.acquisition.sampler import SAMPLERS as NAMES
from autosplit.study.config.study_file import StudyConfig
from autosplit.study.loop.open import OpenStudy, open_study
from autosplit.study.loop.run import run_study
from autosplit.study.progress import Progress
from autosplit.study.record import record_of, result_of
from autosplit.study.results import best_of_study
from autosplit.study.space.enumeration import all_splits
from autosplit.study.space.search_space import Space
from autosplit.study.storage import storage_url
from autosplit.study.surrogate.cost_correction import Measured, correct
from tests.planner.strategies import models

Make = Callable[..., SimulatedBench]


def used(stages: Any) -> int:
    return sum(map(bool, stages))


def over_all_numbers(costs: CostModel, devices: int) -> list[float]:
    """The least period of each number of stages on each choice of devices, in its plainest form."""
    periods = []
    for k in range(1, devices + 1):
        for chosen in combinations(range(devices), k):
            try:
                periods.append(plan(costs.on_devices(chosen), k).period)
            except Infeasible:
                continue
    return periods


@st.composite
def spaces(draw: Any) -> Space:
    devices = draw(st.integers(1, 3))
    costs = draw(
        models(
            most=5,
            devices=draw(st.sampled_from([1, devices])),
            groups=draw(st.booleans()),
            unsupported=True,
        )
    )
    return Space(costs, devices, empty=True)


@given(spaces())
@settings(deadline=None, max_examples=30)
def test_the_plan_is_the_best_over_all_numbers_of_stages(space: Space) -> None:
    periods = over_all_numbers(space.costs, space.stages)
    if not periods:
        with pytest.raises(Infeasible):
            space.plan()
        return
    assert space.evaluate(space.plan()).period == min(periods)


@given(spaces())
@settings(deadline=None, max_examples=30)
def test_listing_counts_every_split_once_and_each_is_its_key(space: Space) -> None:
    splits = list(all_splits(space.costs, space.stage_counts, space.placement))
    assert len(set(splits)) == len(splits) == space.size
    assert all(space.split(space.key(stages)) == stages for stages in splits)
    listed = [space.evaluate(stages).period for stages in space.listed]
    if listed:
        best = space.best(space.costs, len(listed))
        assert [space.evaluate(stages).period for stages in best] == listed
        assert len(set(best)) == len(best)


@given(spaces(), st.lists(st.floats(0, 1), min_size=4, max_size=4))
@settings(deadline=None, max_examples=30)
def test_any_parameters_decode_to_a_split_of_the_space(space: Space, values: list[float]) -> None:
    stages = space.decode(dict(zip(space.names, values, strict=False)))
    assert space.split(space.key(stages)) == stages
    assert set(space.parameters(stages)) == set(space.names)


@given(spaces())
@settings(deadline=None, max_examples=30)
def test_moves_reach_every_split(space: Space) -> None:
    free = replace(space.costs, times=tuple((1.0,) * len(row) for row in space.costs.times))
    space = Space(free, space.stages, empty=True)
    visited, queue = {space.listed[0]}, [space.listed[0]]
    for stages in queue:
        fresh = [n for n in space.neighbours(stages) if n not in visited]
        visited.update(fresh)
        queue += list(dict.fromkeys(fresh))
    assert len(visited) == space.size


def test_a_stage_moves_past_devices_that_are_alike() -> None:
    assert list(CanonicalPlacement((0, 0, 1)).on_another_kind(((0,), (), ()))) == [((), (), (0,))]
    assert list(CanonicalPlacement((0, 1, 1)).on_another_kind(((0,), (1,), ()))) == [
        ((), (0,), (1,))
    ]


def test_on_devices_that_are_alike_empty_stages_come_last(chain_bench: Make) -> None:
    space = Space(chain_bench(ops=4, stages=3).costs, 3, empty=True)
    assert space.size == 1 + 3 + 3
    assert all(list(stages) == sorted(stages, key=lambda ops: not ops) for stages in space.listed)
    with pytest.raises(SplitError, match="not a candidate of this space"):
        space.split("3:0.3")


def test_each_choice_among_unequal_devices_is_a_split_of_its_own() -> None:
    costs = CostModel("c", ("a", "b"), (0, 1), ((1.0, 1.0), (2.0, 2.0), (3.0, 3.0)))
    space = Space(costs, 3, empty=True)
    assert space.size == 3 + 3
    assert space.evaluate(space.plan()).period == 2.0


@given(st.lists(st.integers(0, 2), min_size=1, max_size=6), st.integers(0, 4))
def test_choices_of_devices_are_the_different_ones(kinds: list[int], count: int) -> None:
    places = CanonicalPlacement(tuple(kinds))
    choices = list(places.device_choices(count))
    different = {
        tuple(kinds[d] for d in chosen) for chosen in combinations(range(len(kinds)), count)
    }
    assert {tuple(kinds[d] for d in chosen) for chosen in choices} == different
    assert len(choices) == places.count(count) == len(different)
    parts = [(d,) for d in range(count)]
    assert all(
        places.canonical(s) == s for s in (places.assign(parts, chosen) for chosen in choices)
    )


def test_the_narrowest_stages_stay_empty() -> None:
    assert largest_stages([0.5, 0.45], 2) == ([0, 2], [0.475])
    assert largest_stages([0.5, 0.1], 2) == ([1, 2], [0.5])
    assert largest_stages([0.5, 0.5], 1) == ([0], [])


def test_random_splits_use_any_number_of_devices(branchy_bench: Make) -> None:
    space, rng = Space(branchy_bench().costs, 3, empty=True), np.random.default_rng(0)
    splits = [space.random(rng) for _ in range(30)]
    assert {used(stages) for stages in splits} == {1, 2, 3}


def test_many_splits_cost_what_each_costs_alone(chain_bench: Make) -> None:
    costs = chain_bench(ops=5, stages=3).costs
    costs = replace(costs, overheads=(0.5,))
    slower = replace(costs, times=tuple(tuple(2 * t for t in row) for row in costs.times))
    space = Space(costs, 3, empty=True)
    crowd = ContentionCosts(costs, slower, 3)
    pool = space.evaluator.batch(space.listed)
    assert pool.times(crowd) == pytest.approx(
        np.array([space.evaluate(s, crowd).loads for s in space.listed])
    )
    assert pool.memory.tolist() == [space.memory(s) for s in space.listed]


@pytest.mark.parametrize("rows", [1, 3])
def test_the_best_under_costs_that_depend_on_the_crowd(chain_bench: Make, rows: int) -> None:
    costs = chain_bench(ops=7, stages=3).costs
    row = np.array(costs.times[0])
    alone, all_busy = (
        replace(costs, times=tuple(tuple(row * s * (1 + d)) for d in range(rows)))
        for s in (1.0, 2.4)
    )
    crowd = ContentionCosts(alone, all_busy, 3)
    space = Space(crowd.at(1), 3, empty=True)
    best = space.best(crowd, 10)
    periods = sorted(
        space.evaluate(s, crowd).period
        for s in all_splits(space.costs, space.stage_counts, space.placement)
    )
    assert [space.evaluate(s, crowd).period for s in best] == pytest.approx(periods[:10])


def test_what_is_learnt_does_not_come_from_empty_stages(chain_bench: Make) -> None:
    costs = CostModel("c", ("a", "b"), (0, 1), ((1.0, 1.0),))
    trials = [Measured(0, ((0, 1), ()), (2.0, 0.0), 2.0)]
    corrected = correct(costs, ("cores:0", "cores:1"), trials, empty=True)
    assert corrected.period(((0, 1), ())) == pytest.approx(2.0, rel=0.01)


def test_stages_that_slow_each_other_down_are_told_from_costs(chain_bench: Make) -> None:
    costs = CostModel("c", ("a", "b", "c", "d"), (0, 1, 2, 4), ((1.0, 1.0, 1.0, 1.0),))
    devices = ("cores:0", "cores:1")
    trials = [
        Measured(0, ((0, 1), (2, 3)), (3.6, 3.6), 3.6),
        Measured(1, ((0, 1, 2, 3), ()), (4.0, 0.0), 4.0),
    ]
    corrected = correct(costs, devices, trials, empty=True)
    assert corrected.period(((0, 1, 2), (3,))) > 1.5 * 3
    assert corrected.period(((0, 1, 2, 3), ())) == pytest.approx(4.0, rel=0.1)


@pytest.fixture
def auto(tmp_path: Path) -> Callable[..., OpenStudy]:
    def open_it(bench: Any, **search: Any) -> OpenStudy:
        document = {
            "name": "s",
            "runtime": "simulated",
            "stages": "auto",
            # On local cores alone, replicas would be searched too.
            "devices": [f"cuda:{n}" for n in range(len(bench.devices))],
        }
        config = StudyConfig.model_validate({**document, "search": search})
        return open_study(config, bench, storage_url("s", str(tmp_path / "s.db")), Progress())

    return open_it


@pytest.mark.integration
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("contention", [0.35, 1.5])
def test_a_study_finds_how_many_stages_are_best(
    chain_bench: Make, auto: Callable[..., OpenStudy], contention: float, seed: int
) -> None:
    bench = chain_bench(ops=24, stages=4, contention=contention, seed=seed, error=0.1, noise=0.01)
    opened = auto(bench, trials=14)
    run_study(opened, Progress())
    best = best_of_study(opened.study)
    assert best is not None
    chosen = bench.truth(opened.space.split(best.record.key)).period
    least = min(plan(bench.true_of(k), k).period for k in range(1, 5))
    assert chosen <= 1.03 * least


@pytest.mark.integration
@pytest.mark.parametrize("name", NAMES)
def test_every_split_of_every_number_is_measured_before_none_is_left(
    chain_bench: Make, auto: Callable[..., OpenStudy], name: str
) -> None:
    opened = auto(chain_bench(ops=4, stages=3), trials=50, sampler=name, converge=False)
    run_study(opened, Progress())
    assert opened.study.user_attrs["result"]["stopped"].startswith("exhausted")
    assert sorted(result_of(t).key for t in opened.study.trials) == sorted(
        map(opened.space.key, opened.space.listed)
    )


def test_a_trial_holds_a_place_for_every_device(
    chain_bench: Make, auto: Callable[..., OpenStudy]
) -> None:
    opened = auto(chain_bench(ops=4, stages=3), trials=7, sampler="exhaustive")
    run_study(opened, Progress())
    for trial in opened.study.trials:
        stored = record_of(trial)
        assert [bool(ops) for ops in stored.stages] == [t > 0 for t in stored.stage_ms]
        assert len(stored.cuts) == len(stored.live) == used(stored.stages) - 1
    shown = document(opened.study, opened.url)
    assert shown["study"]["stages"] == "auto"
    assert all(len(t["stage_ms"]) == 3 for t in shown["trials"])


STUDY = """
runtime = "simulated"
stages = "auto"
devices = ["cuda:0", "cuda:1", "cuda:2"]
[search]
trials = 9
[simulated]
ops = 12
error = 0.05
contention = 2.0
"""


@pytest.mark.integration
def test_the_command_advises_a_single_stage_where_more_only_slow_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.toml").write_text(STUDY)
    assert main(["run", "a.toml", "-f", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert used(shown["best"]["stages"]) == 1
    assert shown["best"]["cuts"] == []
    assert "as one stage it takes" in shown["verdict"]["text"]
    assert main(["show", "a.db"]) == 0
    assert "up to 3 stages" in " ".join(capsys.readouterr().out.split())
    assert main(["run", "a.toml", "--stages", "3"]) == 2
    assert "stages was 'auto', is '3'" in capsys.readouterr().err


def test_a_split_of_a_fixed_number_keeps_its_key(chain_bench: Make) -> None:
    costs = chain_bench(ops=6, stages=3).costs
    fixed, free = Space(costs, 3), Space(costs, 3, empty=True)
    assert all(free.split(fixed.key(stages)) == stages for stages in fixed.listed)


def test_as_many_stages_as_cores_without_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autosplit.study.config.study_file.available", lambda: (0, 2, 3))
    config = StudyConfig.model_validate({"name": "n", "runtime": "simulated", "stages": "auto"})
    assert config.most_stages == 3
