import math
from dataclasses import replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from autosplit.planner import CostModel, Transfer, plan
from studies.benchmarks.planned_baselines import block_partition, planned_baselines
from tests.planner.graphs import costed, parallel_chains, random_dag
from tests.planner.strategies import models

CHAIN = costed(6, [(i, i + 1) for i in range(5)], transfer=0.0)
UNSIZED = parallel_chains(1, 6)
PAIR = CostModel("m", ("a", "b"), (0, 1), ((1.0, 2.0),), (Transfer("t", 0, (1,), 8.0),))


@given(models(most=6, memory=True, groups=True, inputs=True))
@settings(deadline=None, max_examples=60)
def test_no_baseline_is_better_than_the_plan(model):
    stages = min(2, len(model.contraction.groups))
    for baseline in planned_baselines(model, stages):
        if baseline.plan is not None:
            assert baseline.plan.period >= plan(model, stages).period


def named(model, stages):
    return {b.name: b for b in planned_baselines(model, stages)}


def test_empty_stages_have_no_baselines():
    assert planned_baselines(CHAIN, 7) == ()


def test_a_search_without_time_says_so():
    baselines = planned_baselines(CHAIN, 3, deadline=lambda: True)
    notes = {b.name: b.note for b in baselines if b.plan is None}
    assert notes["best over one order"] == notes["single-tensor cuts"] == "the time was up"


def test_equal_shares_of_ops_parameters_and_flops():
    model = replace(CHAIN, sizes=(10.0, 0, 0, 0, 0, 10.0), flops=(1.0, 1.0, 2.0, 0, 0, 0))
    result = named(model, 2)
    assert result["equal op count"].plan.stages == ((0, 1, 2), (3, 4, 5))
    assert result["equal parameters"].plan.stages[0] == (0,)
    assert result["equal FLOPs"].plan.stages == ((0, 1), (2, 3, 4, 5))
    assert named(CHAIN, 2)["equal FLOPs"].note


@given(st.lists(st.integers(0, 20), min_size=1, max_size=12), st.integers(1, 5))
def test_block_partition_differ_by_no_more_than_one_element(times, count):
    ends = [0, *block_partition(times, count), len(times)]
    assert ends == sorted(ends)
    sums = [sum(times[a:b]) for a, b in pairwise(ends)]
    assert len(sums) == count
    assert max(sums) - min(sums) <= max(times)


def test_a_line_is_cut_as_well_by_its_one_order_and_at_single_tensors():
    baselines, best = named(CHAIN, 3), plan(CHAIN, 3)
    assert baselines["best over one order"].plan.stages == best.stages
    assert baselines["single-tensor cuts"].plan.stages == best.stages


def test_single_tensor_cuts_do_not_cut_two():
    # 0 -> (1 -> 2 -> 3, 4 -> 5 -> 6) -> 7 -> 8
    model = costed(9, [(0, 1), (1, 2), (2, 3), (0, 4), (4, 5), (5, 6), (3, 7), (6, 7), (7, 8)])
    result = named(model, 3)["single-tensor cuts"].plan
    assert result.stages == ((0,), (1, 2, 3, 4, 5, 6, 7), (8,))


def test_parallel_chains_have_no_single_tensor_cut_between_them():
    assert named(parallel_chains(2, 3), 2)["single-tensor cuts"].plan is not None
    assert named(costed(4, [(0, 1), (0, 2), (1, 3), (2, 3)]), 4)["single-tensor cuts"].plan is None


def test_bisection_on_a_line_is_near_the_best_and_says_what_it_measures():
    model = random_dag(60, 1, transfer=0.0)
    result = named(model, 4)["Coral bisection"]
    assert result.plan.period <= 1.05 * named(model, 4)["best over one order"].plan.period
    assert 30 <= result.candidates <= 300


def test_a_baseline_that_does_not_fit_says_why():
    sizes = (10.0, 10.0, 10.0, 0.0, 0.0, 0.0)
    baselines = {
        b.name: b for b in planned_baselines(replace(UNSIZED, sizes=sizes, memory=(20.0,)), 2)
    }
    assert baselines["equal op count"].plan is None
    assert baselines["equal op count"].note == "exceeds the memory of a device"
    assert baselines["equal parameters"].plan is not None
    times = (UNSIZED.times[0], (*UNSIZED.times[0][:5], math.inf))
    baselines = {b.name: b for b in planned_baselines(replace(UNSIZED, times=times), 2)}
    assert baselines["equal op count"].note == "puts an op on a device that cannot run it"


def test_two_tensors_between_the_same_ops_are_no_cut_at_a_single_tensor():
    double = replace(
        PAIR,
        tensors=(*PAIR.tensors, Transfer("u", 0, (1,), 8.0)),
        send=((0.0, 0.0),),
        receive=((0.0, 0.0),),
    )
    assert {b.name: b for b in planned_baselines(PAIR, 2)}["single-tensor cuts"].plan.stages == (
        (0,),
        (1,),
    )
    assert {b.name: b for b in planned_baselines(double, 2)}["single-tensor cuts"].plan is None
