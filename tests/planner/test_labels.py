"""The k best plans, and the front of period and latency, against brute force."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.planner.labels import front, k_best
from tests.planner.models import answers, deployment_questions, models, split_questions


@given(st.data())
def test_the_k_best_splits_equal_brute_force(data: st.DataObject) -> None:
    costs = data.draw(models(kinds=1))
    question = data.draw(split_questions(costs))
    best_of_split: dict[object, tuple[float, float]] = {}
    for plan in answers(costs, question):
        rank = plan.period, plan.latency
        best_of_split[plan.split] = min(rank, best_of_split.get(plan.split, rank))
    k = data.draw(st.integers(1, 8))
    if best_of_split:
        expected = sorted(best_of_split.values())[:k]
        plans = k_best(costs, question, k)
        assert [p.period for p in plans] == pytest.approx([p for p, _ in expected])
        assert len({plan.split for plan in plans}) == len(plans)


@given(st.data())
def test_the_front_equals_brute_force(data: st.DataObject) -> None:
    costs = data.draw(models(threads=(1, 2), kinds=1))
    question = data.draw(deployment_questions(costs, cores=True))
    points = sorted({(p.period, p.latency) for p in answers(costs, question)})
    if points:
        expected, least = [], float("inf")
        for period, latency in points:
            if latency < least * (1 - 1e-9):
                expected, least = [*expected, (period, latency)], latency
        plans, complete = front(costs, question)
        assert complete
        assert [p.latency for p in plans] == pytest.approx([latency for _, latency in expected])
