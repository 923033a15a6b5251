"""The one search against brute force, for every kind of question."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.errors import Infeasible
from autosplit.planner.evaluation import evaluate, fits
from autosplit.planner.problem import Question
from autosplit.planner.solver import partition
from tests.planner.models import answers, deployment_questions, models, split_questions


def check(costs, question):
    """A plan is legal, fits, and no answer has a shorter period, or with as few devices latency."""
    every_answer = list(answers(costs, question))
    if not every_answer:
        with pytest.raises(Infeasible):
            partition(costs, question)
        return
    plan = partition(costs, question)
    model = costs.with_groups(question.keep_together)
    assert fits(model, plan)
    assert evaluate(model, plan.stages).rank == plan.rank
    assert plan.optimal
    assert plan.period == pytest.approx(min(p.period for p in every_answer), rel=1e-9)
    if not question.replicas:
        equal = [p for p in every_answer if p.period <= plan.period * (1 + 1e-9)]
        assert plan.latency == pytest.approx(min(p.latency for p in equal), rel=1e-6)
    begun = partition(costs, question, known=every_answer[-1].stages)
    assert begun.optimal
    assert begun.rank == pytest.approx(plan.rank, rel=1e-6)


@given(st.data())
def test_splits_equal_brute_force(data):
    costs = data.draw(models())
    check(costs, data.draw(split_questions(costs)))


@given(st.data())
def test_deployments_on_cores_equal_brute_force(data):
    costs = data.draw(models(threads=(1, 2), kinds=data.draw(st.integers(1, 2))))
    check(costs, data.draw(deployment_questions(costs, cores=True)))


@given(st.data())
def test_replicas_on_unlike_devices_equal_brute_force(data):
    costs = data.draw(models())
    check(costs, data.draw(deployment_questions(costs, cores=False)))


@given(st.data())
def test_batches_equal_brute_force(data):
    costs = data.draw(models(batches=(1, 2), kinds=1))
    check(costs, data.draw(deployment_questions(costs, cores=True)))


@given(st.data())
def test_least_latency_within_a_period_equals_brute_force(data):
    costs = data.draw(models(kinds=1))
    question = Question.of_split(data.draw(st.integers(1, 3)), "k0")
    every_answer = list(answers(costs, question))
    periods = sorted(p.period for p in every_answer)
    if periods and periods[-1] > 0:
        limit = data.draw(st.sampled_from([p for p in periods if p > 0]))
        plan = partition(costs, question, max_period=limit)
        within = [p.latency for p in every_answer if p.period <= limit * (1 + 1e-9)]
        assert plan.latency == pytest.approx(min(within), rel=1e-6)
