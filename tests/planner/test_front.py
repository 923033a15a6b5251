import pytest
from hypothesis import given, settings

from autosplit.errors import Infeasible
from autosplit.planner import least_latency, pareto_front, plan
from tests.planner.graphs import random_dag
from tests.planner.reference import brute_force, model_cost
from tests.planner.strategies import questions


def peak(model, stages):
    return max(model_cost(model, stages)[3])


@given(questions())
@settings(deadline=None, max_examples=60)
def test_the_front_holds_every_undominated_point_once(question):
    model, stages, allow_empty = question
    points = {(p, latency, peak(model, s)) for p, latency, _, s in brute_force(model, stages, allow_empty)}
    if not points:
        return
    best = {x for x in points if not any(y != x and all(a <= b for a, b in zip(y, x, strict=True)) for y in points)}
    found = pareto_front(model, stages, allow_empty=allow_empty)
    assert found.complete
    assert [(p.period, p.latency, max(p.memory)) for p in found.plans] == sorted(tuple(map(float, x)) for x in best)


@given(questions())
@settings(deadline=None, max_examples=60)
def test_the_least_latency_under_a_period_limit(question):
    model, stages, allow_empty = question
    splits = brute_force(model, stages, allow_empty)
    if not splits:
        return
    limit = splits[len(splits) // 2][0]
    found = least_latency(model, stages, float(limit), allow_empty=allow_empty)
    expected = min((latency, moved) for period, latency, moved, _ in splits if period <= limit)
    assert (found.latency, found.bytes_moved) == tuple(map(float, expected))
    assert found.period <= limit


def test_a_period_that_no_split_reaches_is_infeasible():
    model = random_dag(12, 0)
    least = plan(model, 3).period
    assert least_latency(model, 3, least).period == least
    with pytest.raises(Infeasible, match="the least found is"):
        least_latency(model, 3, least * 0.999)
