"""Stages of which each has the runtime that computes it fastest."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings

from autosplit.errors import GraphError, SplitError
from autosplit.planner import CostModel, evaluate, k_best, plan, plan_assigned
from autosplit.planner.batch.evaluation import BatchEvaluator
from autosplit.planner.batch.stage_table import all_stages
from tests.planner.graphs import branchy, parallel_chains, random_dag
from tests.planner.milp import least_period
from tests.planner.reference import all_splits, brute_force
from tests.planner.strategies import models, questions

CHAIN = replace(parallel_chains(1, 4, transfer=0.0), times=((1.0, 1.0, 1.0, 1.0),))


def in_two_runtimes(model, seed, groups=()):
    """Times of another runtime from half to twice as long, with groups of its own."""
    random = Random(seed)
    times = tuple(time * random.uniform(0.5, 2) for time in model.times[0])
    other = replace(model, times=(times,), overheads=(0.3,), groups=groups)
    return CostModel.of_runtimes({"tvm": model, "openvino": other})


def test_each_stage_has_the_runtime_that_is_fastest_for_all_its_ops() -> None:
    other = replace(CHAIN, times=((9.0, 0.5, 0.5, 0.5),))
    best = plan(CostModel.of_runtimes({"tvm": CHAIN, "openvino": other}), 2)
    assert best.stages == ((0,), (1, 2, 3))
    assert best.runtimes == ("tvm", "openvino")
    assert best.loads == (1.0, 1.5)


def test_a_runtime_with_coarser_cuts_restricts_itself_alone() -> None:
    whole = replace(CHAIN, times=((0.25,) * 4,), groups=(0b1111,))
    costs = CostModel.of_runtimes({"tvm": CHAIN, "openvino": whole})
    assert plan(costs, 2).runtimes == ("tvm", "tvm")
    assert evaluate(costs, [range(4)]).runtimes == ("openvino",)
    assert evaluate(costs, [range(4), ()], allow_empty=True).runtimes == ("openvino", "")


def test_ops_that_no_runtime_separates_are_one_group() -> None:
    pairs = {"tvm": replace(CHAIN, groups=(0b0011,)), "openvino": replace(CHAIN, groups=(0b0111,))}
    costs = CostModel.of_runtimes(pairs)
    assert costs.contraction.groups == (0b0011, 0b0100, 0b1000)
    with pytest.raises(SplitError):
        evaluate(costs, [(0,), (1, 2, 3)])


def test_overheads_are_those_of_the_runtime() -> None:
    quick = replace(CHAIN, times=((0.5,) * 4,), overheads=(1.5,))
    best = plan(CostModel.of_runtimes({"tvm": CHAIN, "openvino": quick}), 2)
    assert best.period == 2.0
    assert evaluate(CostModel.of_runtimes({"q": quick}), [(0,), (1, 2, 3)]).loads == (2.0, 3.0)


@given(models(devices=2, memory=True, groups=True, inputs=True))
@settings(deadline=None, max_examples=30)
def test_one_runtime_alone_plans_as_no_runtime_does(model) -> None:
    named = CostModel.of_runtimes({"tvm": model})
    for stages in all_splits(model, 2):
        assert replace(evaluate(named, stages), runtimes=()) == evaluate(model, stages)
    assert named.in_runtime("tvm") == replace(model, groups=named.in_runtime("tvm").groups)


@pytest.mark.parametrize("seed", range(4))
def test_equal_to_a_mixed_integer_programme(seed: int) -> None:
    model = random_dag(14, seed, transfer=[0.1, 0.5, 2.0, 0.0][seed])
    costs = in_two_runtimes(model, seed, groups=(0b11 << 4, 1 << 2 | 1 << 9))
    assert plan(costs, 3).period == pytest.approx(least_period(costs, 3), rel=1e-6)


@given(questions(most=5))
@settings(deadline=None, max_examples=40)
def test_the_stages_of_a_batch_cost_what_each_costs_alone(question) -> None:
    model, stages, allow_empty = question
    splits = [*all_splits(model, stages, allow_empty)]
    loads = BatchEvaluator(model).batch(splits).times(model)
    for split, row in zip(splits, loads.tolist(), strict=True):
        try:
            expected = evaluate(model, split, allow_empty=True).loads
        except SplitError:
            assert math.inf in row
        else:
            assert row == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(3))
def test_a_table_of_stages_lists_what_the_planner_lists(seed: int) -> None:
    costs = in_two_runtimes(branchy(3, 3, seed=seed, transfer=0.3), seed, groups=(0b1110,))
    table = all_stages(costs, 3)
    assert table is not None
    listed = k_best(costs, 3, 20)
    results = [evaluate(costs, stages) for stages in table.best(costs, 20)]
    assert [p.period for p in results] == pytest.approx([p.period for p in listed])
    draws = [costs, in_two_runtimes(costs.in_runtime("tvm"), seed + 9, groups=(0b1110,))]
    best = table.best_of_each(draws, [math.inf] * 2)
    periods = [evaluate(c, s).period for c, s in zip(draws, best, strict=True) if s]
    assert periods == pytest.approx([plan(c, 3).period for c in draws])


def test_devices_that_differ_in_one_runtime_are_tried_in_every_order() -> None:
    slow = replace(CHAIN, times=((4.0,) * 4, (2.0, 2.0, 2.0, 9.0)))
    quick = replace(CHAIN, times=((1.0, 1.0, math.inf, math.inf), (math.inf,) * 4))
    costs = CostModel.of_runtimes({"tvm": slow, "openvino": quick})
    best = plan_assigned(costs, 2)
    ranks = [brute_force(costs.on_devices(order), 2)[0][0] for order in ((0, 1), (1, 0))]
    assert best.period == min(ranks)


def test_an_op_limited_to_a_device_is_so_in_every_runtime() -> None:
    costs = in_two_runtimes(CHAIN, 0).only_on([3], [1], 2)
    assert [[row[3] for row in r.times] for r in costs.runtimes] == [
        [math.inf, r.times[1][3]] for r in costs.runtimes
    ]
    assert plan(costs, 2).loads[1] < math.inf
    assert np.isinf(evaluate(costs, [range(4), ()], allow_empty=True).period)


def test_times_that_are_not_those_of_the_runtimes_are_refused() -> None:
    costs = in_two_runtimes(CHAIN, 0)
    with pytest.raises(GraphError, match="of_runtimes"):
        replace(costs, times=((1.0, 2.0, 3.0, 4.0),))
