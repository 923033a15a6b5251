import pytest
from hypothesis import given, settings

from autosplit.errors import Infeasible
from autosplit.planner import CostModel, Transfer, k_best, least_latency, pareto_front, plan
from autosplit.planner.partition import labels
from tests.planner.graphs import random_dag
from tests.planner.reference import brute_force
from tests.planner.strategies import questions


@given(questions())
@settings(deadline=None, max_examples=60)
def test_the_least_latency_under_a_period_limit(question):
    model, stages, allow_empty = question
    splits = brute_force(model, stages, allow_empty)
    if not splits:
        return
    limit = splits[len(splits) // 2][0]
    quickest = least_latency(model, stages, float(limit), allow_empty=allow_empty)
    expected = min(
        (latency, transfers) for period, latency, transfers, _ in splits if period <= limit
    )
    assert (quickest.latency, quickest.bytes_moved) == tuple(map(float, expected))
    assert quickest.period <= limit


def test_a_device_that_is_better_left_out_costs_no_latency():
    transfers = (Transfer("t", 0, (1,), 8.0),)
    model = CostModel(
        "m",
        ("a", "b"),
        (0, 1),
        ((5.0, 5.0),),
        transfers,
        ((1.0,),),
        ((1.0,),),
        overheads=(0.0, 0.0, 99.0),
    )
    assert plan(model, 3, allow_empty=True).latency == 12
    assert least_latency(model, 3, 10.0, allow_empty=True).latency == 10


def test_each_op_counts_on_its_own_device_where_the_least_latency_is_slower():
    times = ((4.0, 2.0, 50.0, 50.0), (50.0, 3.0, 2.0, 50.0), (50.0, 50.0, 50.0, 1.0))
    model = CostModel("m", tuple("abcd"), (0, 1, 2, 4), times)
    assert (plan(model, 3).period, plan(model, 3).latency) == (5, 10)
    assert least_latency(model, 3, 6.0).latency == 9


@pytest.mark.parametrize("asked", range(0, 60, 3))
def test_whatever_time_there_is_what_is_claimed_holds(asked):
    def late():
        left = iter(range(asked))
        return lambda: next(left, None) is None

    model = random_dag(8, 5, size=1.0)
    limit = 1.5 * plan(model, 3).period
    quickest = least_latency(model, 3, limit, deadline=late())
    assert quickest.period <= limit
    assert not quickest.optimal or quickest == least_latency(model, 3, limit)
    points, complete = pareto_front(model, 3, deadline=late())
    assert points
    assert not complete or points == pareto_front(model, 3)[0]
    listed = k_best(model, 3, 9, deadline=late())
    assert (len(listed) == 9) == (not listed[0].note)


def test_a_period_that_no_split_reaches_is_infeasible():
    model = random_dag(12, 0)
    least = plan(model, 3).period
    assert least_latency(model, 3, least).period == least
    with pytest.raises(Infeasible, match="has a period of at most"):
        least_latency(model, 3, least * 0.999)


@given(questions())
@settings(deadline=None, max_examples=60)
def test_the_front_holds_every_undominated_point_once(question):
    model, stages, allow_empty = question
    points, least = [], None
    for period, latency, _, _ in sorted(brute_force(model, stages, allow_empty)):
        if least is None or latency < least:
            least = latency
            points.append((float(period), float(latency)))
    if points:
        plans, complete = pareto_front(model, stages, allow_empty=allow_empty)
        assert complete
        assert [(p.period, p.latency) for p in plans] == points


def test_a_front_of_too_many_points_says_it_may_miss_some(monkeypatch):
    model = random_dag(12, 0, size=1.0)
    whole, _ = pareto_front(model, 3)
    monkeypatch.setattr(labels, "MOST_LABELS", 3)
    plans, complete = pareto_front(model, 3)
    assert len(whole) > 1
    assert not complete
    assert plans[0].period == whole[0].period
