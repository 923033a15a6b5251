"""The space of deployments: keys, parameters, moves, and the planner's best."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.errors import Infeasible, SplitError
from autosplit.hardware.bench.simulated import chain_of
from autosplit.hardware.measurement.results import Baseline, Spread
from autosplit.planner import CostModel, plan_deployment
from autosplit.planner.batch.deployments import DeployedSplit
from autosplit.planner.problem.contention import ContentionCosts
from autosplit.study.acquisition.history import History
from autosplit.study.acquisition.proposals import unmeasured_baselines
from autosplit.study.documents import document_of
from autosplit.study.record import RECORD
from autosplit.study.space.deployment_space import DeploymentSpace
from autosplit.study.space.search_space import Space
from autosplit.study.surrogate.cost_correction import Measured

COUNTS, CORES = (1, 2, 4), ((0, 1, 2, 5),)


def costs(ops: int = 8, memory: float | None = None) -> CostModel:
    """A chain whose ops have a byte each, with costs for one, two and four threads."""
    _, one = chain_of(ops, 0)
    rows = tuple(tuple(time / speed for time in one.times[0]) for speed in (1, 1.8, 3))
    limit = (memory or float("inf"),)
    return replace(one, times=rows, sizes=(1.0,) * ops, memory=limit, activations=False)


def space_of(ops: int = 8, memory: float | None = None) -> DeploymentSpace:
    return DeploymentSpace(costs(ops, memory), CORES, COUNTS)


SPACE = space_of()


@given(st.lists(st.floats(0, 1), min_size=len(SPACE.names), max_size=len(SPACE.names)))
def test_any_parameters_decode_to_a_deployment_on_the_cores(values: list[float]) -> None:
    deployment = SPACE.decode(dict(zip(SPACE.names, values, strict=True)))
    assert SPACE.evaluate(deployment).cores == deployment.cores <= 4
    assert SPACE.split(SPACE.key(deployment)) == deployment
    assert SPACE.decode(SPACE.parameters(deployment)) == deployment


def test_the_corners_have_keys_parameters_and_cores() -> None:
    whole, halves = (tuple(range(8)),), (tuple(range(4)), tuple(range(4, 8)))
    keys = {
        "1:@4x1": DeployedSplit(whole, (4,), (1,)),
        "1:@1x4": DeployedSplit(whole, (1,), (4,)),
        "2:f": DeployedSplit(halves, (1, 1), (1, 1)),
        "2:f@2x1.1x2": DeployedSplit(halves, (2, 1), (1, 2)),
    }
    for key, deployment in keys.items():
        assert SPACE.key(deployment) == key
        assert SPACE.split(key) == deployment
        assert SPACE.decode(SPACE.parameters(deployment)) == deployment
    devices = [stage.devices for stage in SPACE.deployment(keys["2:f@2x1.1x2"]).stages]
    assert devices == [("cores:0", "cores:1"), ("cores:2,5",)]


def test_a_baseline_on_these_cores_has_the_key_of_its_candidate() -> None:
    assert SPACE.unsplit_keys == {"tvm, 4 replicas": "1:@4x1", "tvm, 4 threads": "1:@1x4"}


@pytest.mark.parametrize(
    ("taken", "expected"), [(set(), ["1:@1x4", "1:@4x1"]), ({"1:@1x4"}, ["1:@4x1"])]
)
def test_baselines_that_may_beat_every_trial_are_measured_as_trials(
    taken: set[str], expected: list[str]
) -> None:
    baselines = [
        Baseline("tvm, 4 replicas", Spread(4.0, 2.9, 5.0), Spread(4.0, 4.0, 4.0)),
        Baseline("tvm, 4 threads", Spread(2.0, 1.0, 3.0), Spread(2.0, 2.0, 2.0)),
        Baseline("openvino, throughput hint", Spread(1.0, 1.0, 1.0), Spread(1.0, 1.0, 1.0)),
    ]
    attributes = {RECORD: {"baselines": list(map(document_of, baselines))}}
    halves = (tuple(range(4)), tuple(range(4, 8)))
    trials = (Measured(0, halves, (3.0, 2.0), 3.0),)
    assert unmeasured_baselines(SPACE, attributes, History(frozenset(taken), trials)) == expected
    slower = (Measured(0, halves, (3.0, 2.0), 0.5),)
    assert unmeasured_baselines(SPACE, attributes, History(frozenset(), slower)) == []
    assert unmeasured_baselines(SPACE, attributes, History()) == []


@pytest.mark.parametrize(("streams", "most"), [(1, 1), (2, 2), (3, 3)])
def test_replicas_that_no_stream_has_a_use_for_are_no_candidates(streams: int, most: int) -> None:
    known = replace(costs(), states=(("h", 1 << 5),), streams=streams)
    space, rng = DeploymentSpace(known, CORES, COUNTS), np.random.default_rng(0)
    candidates = [space.random(rng) for _ in range(30)] + space.best(known, 30)
    candidates += [space.decode(dict.fromkeys(space.names, value)) for value in (0.1, 0.5, 1.0)]
    for candidate in filter(None, candidates):
        assert space.decode(space.parameters(candidate)) == candidate
        for ops, replicas in zip(candidate.stages, candidate.replicas, strict=True):
            assert replicas <= most or 5 not in ops
    assert max(d.replicas[0] for d in space.whole_models) == most
    assert space.plan() in candidates


def test_a_plain_pipeline_has_the_key_of_its_split() -> None:
    splits = Space(replace(costs(), times=costs().times[:1]), 3)
    stages = splits.plan()
    assert SPACE.key(DeployedSplit(stages, (1, 1, 1), (1, 1, 1))) == splits.key(stages)


@pytest.mark.parametrize(
    "key",
    ["", "2:f@", "2:f@1x1.1x1", "2:f@2x1", "2:f@4x1.1x1", "2:f@0x1.1x1", "2:f@1x3.1x1", "2:f@2.1",
     "3:f", "1:@x", "2:ff", "2:zz"],
)  # fmt: skip
def test_other_texts_are_no_keys(key: str) -> None:
    with pytest.raises(SplitError):
        SPACE.split(key)


def test_moves_are_legal_and_reach_the_corners() -> None:
    space = DeploymentSpace(costs(3).on_devices([0, 1]), ((0, 1),), COUNTS[:2])
    visited = {space.plan()}
    queue = [space.plan()]
    for deployment in queue:
        fresh = [n for n in space.neighbours(deployment) if n not in visited]
        assert all(n.cores <= 2 for n in fresh)
        visited.update(fresh)
        queue += fresh
    shapes = {(len(d.stages), d.replicas, d.threads) for d in visited}
    assert {(1, (2,), (1,)), (1, (1,), (2,))} <= shapes


def test_random_deployments_fit_the_cores_and_the_memory() -> None:
    space, rng = space_of(memory=5.0), np.random.default_rng(0)
    drawn = [space.random(rng) for _ in range(20)]
    assert all(d is not None and space.fits(d) and space.memory(d) <= 5 for d in drawn)
    assert len(set(drawn)) > 10


def test_the_best_is_the_planners() -> None:
    space = space_of(memory=5.0)
    known = plan_deployment(space.costs, 4, thread_counts=COUNTS)
    best = space.best(space.costs, 5)
    periods = [space.evaluate(d).period for d in best]
    assert periods == sorted(periods)
    assert periods[0] == space.evaluate(space.plan()).period == known.period
    assert space.best_plan.lower_bound == known.lower_bound


def test_fewer_cores_are_best_where_busy_ones_slow_each_other_down() -> None:
    space = space_of()
    slow = tuple(tuple(9 * time for time in row) for row in space.costs.times)
    contention = ContentionCosts(space.costs, replace(space.costs, times=slow), 4)
    assert space.best(contention, 2)[0].cores <= 2


def test_nothing_fits_too_little_memory() -> None:
    with pytest.raises(Infeasible):
        space_of(memory=1.5).best(space_of(memory=1.5).costs, 1)


def test_numbers_of_threads_that_save_no_time_are_left_out() -> None:
    rows = tuple(tuple(time * f for time in costs().times[0]) for f in (1, 0.95, 0.5))
    space = DeploymentSpace.of_profile(replace(costs(), times=rows), CORES, COUNTS, "tvm")
    assert space.thread_counts == (1, 4)
    alike = replace(costs(), times=costs().times[:1])
    assert DeploymentSpace.of_profile(alike, CORES, COUNTS, "tvm").thread_counts == (1,)


@pytest.mark.parametrize("memory", [None, 5.0])
def test_each_cut_has_the_period_of_the_best_two_stages_there(memory: float | None) -> None:
    space = space_of(memory=memory)
    shapes = [(r, w) for r in range(1, 5) for w in COUNTS if r * w <= 4]
    expected: dict[int, float] = {}
    for size in range(1, 8):
        stages = (tuple(range(size)), tuple(range(size, 8)))
        for (r, w), (s, v) in itertools.product(shapes, shapes):
            deployment = DeployedSplit(stages, (r, s), (w, v))
            if deployment.cores <= 4 and space.fits(deployment):
                period = space.evaluate(deployment).period
                cut = 2**size - 1
                expected[cut] = min(expected.get(cut, period), period)
    assert space.cut_periods() == pytest.approx(expected)
