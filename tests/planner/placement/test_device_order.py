from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosplit.errors import Infeasible
from autosplit.planner import Constraints, CostModel, evaluate, plan, plan_assigned
from autosplit.planner.placement import device_order
from autosplit.planner.placement.device_order import device_orders
from autosplit.planner.problem.problem import NotFound
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


def test_an_order_that_was_given_up_proves_nothing(monkeypatch):
    model = CostModel("m", ("a", "b"), (0, 1), ((1.0, 2.0), (3.0, 3.0)))

    def given_up(costs, *arguments, **options):
        if costs.times[0] == (1.0, 2.0):
            raise NotFound("the time was up")
        return plan(costs, *arguments, **options)

    monkeypatch.setattr(device_order, "plan", given_up)
    best = plan_assigned(model, 2)
    assert best.devices == (1, 0)
    assert not best.optimal
    assert best.lower_bound < best.period


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


def test_equal_devices_are_not_tried_in_each_others_place():
    times = random_dag(5, 0).times[0]
    model = replace(random_dag(5, 0), times=(times, tuple(2 * t for t in times), times, times))
    assert sorted(device_orders(model, 2)) == [(0, 1), (0, 2), (1, 0)]


def test_a_pin_to_a_device_means_the_device_wherever_it_stands():
    model = parallel_chains(1, 8)
    slow = replace(model, times=(model.times[0], tuple(5 * t for t in model.times[0])))
    best = plan_assigned(slow, 2, constraints=Constraints(devices={"op7": 0}))
    assert best.devices[1] == 0
    assert 7 in best.stages[1]


def test_of_orders_of_equal_period_the_one_of_least_latency_is_found():
    model = CostModel("m", ("a", "b"), (0, 1), ((5.0, 1.0), (5.0, 5.0)))
    best = plan_assigned(model, 2)
    assert (best.devices, best.latency) == ((1, 0), 6.0)


def test_memory_given_for_a_device_is_that_of_the_device_wherever_it_stands():
    model = replace(parallel_chains(1, 8, size=1.0), sizes=(10.0,) * 8)
    slow = replace(model, times=(model.times[0], tuple(5 * t for t in model.times[0])))
    best = plan_assigned(slow, 2, constraints=Constraints(devices={"op7": 0}, memory=(30.0, 60.0)))
    assert best.devices == (1, 0)
    assert best.memory[1] <= 30


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


def test_where_not_all_orders_are_tried_nothing_is_claimed(monkeypatch):
    monkeypatch.setattr(device_order, "MOST_ORDERS", 1)
    model = random_dag(8, 1)
    best = plan_assigned(
        replace(model, times=(model.times[0], tuple(2 * t for t in model.times[0]))), 2
    )
    assert (best.lower_bound, best.optimal) == (0.0, False)
    assert "only 1 orders" in best.note


def test_alike_devices_need_no_search():
    model = random_dag(8, 1)
    assert plan_assigned(model, 3) == plan(model, 3)


def test_no_order_that_fits_is_infeasible():
    model = random_dag(4, 0, size=10.0, memory=0.1)
    with pytest.raises(Infeasible):
        plan_assigned(replace(model, memory=(0.1, 0.2)), 2)


def test_the_deadline_ends_the_listing_of_device_orders():
    asked = 0

    def late():
        nonlocal asked
        asked += 1
        return asked > 3

    times = tuple((float(d), 2.0 * d) for d in range(1, 8))
    best = plan_assigned(CostModel("m", ("a", "b"), (0, 1), times), 2, deadline=late)
    assert not best.optimal
    assert asked < 20
