"""Devices that share a core: its loads add up in the period and in the bound."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.planner import CostModel, evaluate, plan, plan_shared
from autosplit.planner.placement.shared_resources import slowed
from tests.planner.reference import all_splits
from tests.planner.strategies import models

CHAIN = CostModel("m", tuple("abcdefgh"), tuple(1 << i >> 1 for i in range(8)), ((1.0,) * 8,))


def shared_period(costs, stages, resources):
    """The largest sum of loads on one core, written down once more."""
    loads = evaluate(costs, stages, allow_empty=True).loads
    every_core = {core for cores in resources for core in cores}
    sums = [
        math.fsum(load for load, cores in zip(loads, resources, strict=True) if core in cores)
        for core in every_core
    ]
    return max([*loads, *sums])


def test_two_stages_on_one_core_take_as_long_as_one():
    best = plan_shared(CHAIN, 2, [["core 1"], ["core 1"]])
    assert (best.period, best.lower_bound, best.optimal) == (8.0, 8.0, True)
    assert "share cores" in best.note


def test_three_stages_on_two_cores_give_each_core_half():
    best = plan_shared(CHAIN, 3, [["core 0"], ["core 1"], ["core 0"]])
    assert (best.loads, best.period, best.optimal) == ((2.0, 4.0, 2.0), 4.0, True)


def test_sets_of_cores_that_overlap_share_what_is_in_both():
    best = plan_shared(CHAIN, 2, [["core 0", "core 1"], ["core 1"]])
    assert best.period == sum(best.loads) == 8.0


def test_devices_that_share_nothing_are_planned_as_before():
    resources = [["core 0"], [], ["core 1"]]
    assert slowed(CHAIN, resources) is CHAIN
    assert plan_shared(CHAIN, 3, resources) == plan(CHAIN, 3)


@given(models(most=5, devices=3), st.lists(st.sets(st.sampled_from("012")), min_size=3, max_size=3))
def test_the_period_is_the_largest_sum_and_the_bound_is_below_every_split(costs, resources):
    periods = [
        shared_period(costs, stages, resources) for stages in all_splits(costs, 3, allow_empty=True)
    ]
    if min(periods) == math.inf:
        return
    best = plan_shared(costs, 3, resources, allow_empty=True)
    assert best.period == pytest.approx(shared_period(costs, best.stages, resources))
    assert best.lower_bound <= min(periods) * (1 + 1e-9)
    if best.optimal:
        assert best.period == pytest.approx(min(periods))
