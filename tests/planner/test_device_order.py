from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosplit.errors import Infeasible
from autosplit.planner import CostModel, evaluate, plan, plan_assigned
from tests.planner.graphs import parallel_chains, random_dag
from tests.planner.reference import brute_force
from tests.planner.strategies import models


@st.composite
def assigned(draw):
    stages = draw(st.integers(1, 3))
    devices = draw(st.integers(stages, 4))
    return draw(
        models(most=5, devices=devices, memory=draw(st.booleans()), unsupported=draw(st.booleans()))
    ), stages


@pytest.mark.integration
@given(assigned())
@settings(deadline=None, max_examples=40)
def test_the_order_of_devices_is_the_best_of_all(question):
    model, stages = question
    orders = permutations(range(len(model.times)), stages)
    best = min(
        (b[:3] for o in orders for b in brute_force(model.on_devices(o), stages)[:1]), default=None
    )
    try:
        best_plan = plan_assigned(model, stages)
    except Infeasible:
        assert best is None
        return
    assert (best_plan.period, best_plan.latency, best_plan.bytes_moved) == tuple(map(float, best))
    assert best_plan.optimal
    assert evaluate(model.on_devices(best_plan.devices), best_plan.stages).loads == best_plan.loads


def test_of_orders_of_equal_period_the_one_of_least_latency_is_found():
    model = CostModel("m", ("a", "b"), (0, 1), ((5.0, 1.0), (5.0, 5.0)))
    best = plan_assigned(model, 2)
    assert (best.devices, best.latency) == ((1, 0), 6.0)


@pytest.mark.parametrize("asked", range(0, 24, 2))
@pytest.mark.parametrize("alike", [False, True])
def test_a_deadline_leaves_a_bound_that_no_order_beats(alike, asked):
    model = CostModel("m", ("a", "b"), (0, 1), ((6.0, 1.0), (5.0, 5.0)))
    if alike:
        chains = parallel_chains(2, 4, transfer=0.0)
        model = replace(chains, times=((1.0, 1.0, 1.0, 7.0, 8.0, 2.0, 0.5, 1.5),) * 2)
    left = iter(range(asked))
    best = plan_assigned(model, 2, deadline=lambda: next(left, None) is None)
    least = plan_assigned(model, 2).period
    assert best.lower_bound <= least <= best.period
    assert not best.optimal or best.period == least


def test_alike_devices_need_no_search():
    model = random_dag(8, 1)
    assert plan_assigned(model, 3) == plan(model, 3)


def test_no_order_that_fits_is_infeasible():
    model = random_dag(4, 0, size=10.0, memory=0.1)
    with pytest.raises(Infeasible):
        plan_assigned(replace(model, memory=(0.1, 0.2)), 2)
