"""The one search against brute force, for every kind of question, and where time is short."""

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.deployment import Row
from autosplit.errors import Infeasible
from autosplit.planner import Question, RowCosts, evaluate, fits, front, k_best, labels, partition
from autosplit.planner.moves import Moves
from tests.planner.graphs import Clock, in_runtimes, random_dag
from tests.planner.models import answers, deployment_questions, models, split_questions

ON_CORES, ON_DEVICES = (partial(deployment_questions, cores=cores) for cores in (True, False))


@pytest.mark.parametrize(
    ("drawn", "questions"),
    [
        ({}, split_questions),
        ({"threads": (1, 2)}, ON_CORES),
        ({}, ON_DEVICES),
        ({"batches": (1, 2), "kinds": 1}, ON_CORES),
    ],
    ids=["splits", "cores", "unlike devices", "batches"],
)
@given(data=st.data())
def test_a_plan_equals_brute_force(drawn, questions, data):
    """It is legal, fits, and no answer has a shorter period, or with as few devices latency."""
    costs = data.draw(models(**drawn))
    question = data.draw(questions(costs))
    every_answer = list(answers(costs, question))
    if not every_answer:
        with pytest.raises(Infeasible):
            partition(costs, question)
        return
    plan = partition(costs, question)
    model = costs.with_groups(question.keep_together)
    assert fits(model, plan)
    assert evaluate(model, plan.stages).rank == plan.rank
    assert question.keep_together or Moves(costs, question).allows(plan.stages)
    assert plan.optimal
    assert plan.period == pytest.approx(min(p.period for p in every_answer), rel=1e-9)
    if not question.replicas:
        equal = [p for p in every_answer if p.period <= plan.period * (1 + 1e-9)]
        assert plan.latency == pytest.approx(min(p.latency for p in equal), rel=1e-6)
    begun = partition(costs, question, known=every_answer[-1].stages)
    assert begun.optimal
    assert begun.rank == pytest.approx(plan.rank, rel=1e-6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("autosplit.planner.solver.FEW_CUTS", 0)  # a quick search goes first
        quick = partition(costs, question)
    assert quick.optimal
    assert quick.period == pytest.approx(plan.period, rel=1e-9)


@given(st.data())
def test_least_latency_within_a_period_equals_brute_force(data):
    costs = data.draw(models(kinds=1, batches=(1, 2)))
    question = Question.of_split(data.draw(st.integers(1, 3)), "k0")
    every_answer = list(answers(costs, question))
    periods = sorted(p.period for p in every_answer)
    if periods and periods[-1] > 0:
        limit = data.draw(st.sampled_from([p for p in periods if p > 0]))
        plan = partition(costs, question, max_period=limit)
        within = [p.latency for p in every_answer if p.period <= limit * (1 + 1e-9)]
        assert plan.latency == pytest.approx(min(within), rel=1e-6)
        assert plan.optimal
        assert plan.lower_bound <= periods[0] * (1 + 1e-9)


THIRDS = Question.of_split(3)
ALIKE = random_dag(8, 1, transfer=0.5)
ROW = ALIKE.rows[0]
OTHER = RowCosts(Row(), ROW.times[::-1], 0.3, (0b1001 << 2,))
# Every second op gains from a second thread.
FAST = tuple(time / (2.6, 1.2)[i % 2] for i, time in enumerate(ROW.times))
TWO = replace(ROW, row=Row(threads=2), times=FAST)


@pytest.mark.parametrize(
    ("costs", "question"),
    [
        *((random_dag(12, seed, transfer=seed / 2), THIRDS) for seed in range(4)),
        (random_dag(12, 7, transfer=0.3, size=1.0, memory=3.0), THIRDS),
        (random_dag(12, 3, transfer=0.3, overhead=0.7, groups=(0b1010, 1 << 7 | 1 << 10)), THIRDS),
        (in_runtimes(ALIKE, tvm=ROW, openvino=OTHER), THIRDS),
        (replace(ALIKE, rows=(ROW, TWO)), Question.of_cores(3)),
    ],
)
def test_a_plan_of_more_ops_equals_brute_force(costs, question):
    least = min(plan.period for plan in answers(costs, question))
    assert partition(costs, question).period == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize("asked", range(0, 60, 6))
def test_whatever_time_there_is_what_is_claimed_holds(asked):
    model = random_dag(8, 5, size=1.0)
    limit = 1.5 * partition(model, THIRDS).period
    quickest = partition(model, THIRDS, max_period=limit, deadline=Clock(asked))
    assert quickest.period <= limit
    assert not quickest.optimal or quickest == partition(model, THIRDS, max_period=limit)
    points, complete = front(model, THIRDS, deadline=Clock(asked))
    assert points
    assert not complete or points == front(model, THIRDS)[0]
    listed = k_best(model, THIRDS, 9, deadline=Clock(asked))
    assert (len(listed) == 9) == (not listed[0].note)


def test_a_period_that_no_split_reaches_is_infeasible():
    model = random_dag(12, 0)
    least = partition(model, THIRDS).period
    assert partition(model, THIRDS, max_period=least).period == least
    with pytest.raises(Infeasible, match="has a period of at most"):
        partition(model, THIRDS, max_period=least * 0.999)


def test_a_front_of_too_many_points_says_it_may_miss_some(monkeypatch):
    model = random_dag(12, 0, size=1.0)
    whole, _ = front(model, THIRDS)
    monkeypatch.setattr(labels, "MOST_LABELS", 3)
    plans, complete = front(model, THIRDS)
    assert len(whole) > 1
    assert not complete
    assert plans[0].period == whole[0].period


@given(st.data())
def test_the_k_best_splits_equal_brute_force(data):
    costs = data.draw(models(kinds=1))
    question = data.draw(split_questions(costs))
    best_of_split = {}
    for plan in answers(costs, question):
        rank = plan.period, plan.latency
        best_of_split[plan.split] = min(rank, best_of_split.get(plan.split, rank))
    k = data.draw(st.integers(1, 8))
    if best_of_split:
        expected = sorted(best_of_split.values())[:k]
        plans = k_best(costs, question, k)
        assert [p.period for p in plans] == pytest.approx([p for p, _ in expected])
        assert len({plan.split for plan in plans}) == len(plans)
        assert [p.optimal for p in plans] == [p.period == plans[0].period for p in plans]
        assert {p.lower_bound for p in plans} == {plans[0].period}


@given(st.data())
def test_the_front_equals_brute_force(data):
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
