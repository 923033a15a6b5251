"""Neighbours, random and nearest deployments are among those that a question allows."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from autosplit.planner.batch import BatchEvaluator
from autosplit.planner.evaluation import evaluate, fits
from autosplit.planner.moves import Moves
from tests.planner.models import deployment_questions, models, split_questions


@st.composite
def asked(draw):
    """Costs and a question of any kind about them, which keeps no ops together."""
    cores = draw(st.booleans())
    batches = draw(st.sampled_from([(1,), (1, 2)]))
    costs = draw(models(threads=(1, 2) if cores else (1,), batches=batches))
    if cores or draw(st.booleans()):
        question = draw(deployment_questions(costs, cores))
    else:
        question = draw(split_questions(costs))
    assume(not question.keep_together)
    assume(question.stages is None or question.stages <= len(costs.contraction.groups))
    return costs, question


@given(asked(), st.data())
def test_any_parameters_are_those_of_a_deployment(case, data):
    costs, question = case
    moves = Moves(costs, question)
    stages = moves.decode({name: data.draw(st.sampled_from(r)) for name, r in moves.ranges.items()})
    assert moves.allows(stages)
    evaluate(costs, stages)
    encoded = moves.encode(stages)
    assert list(encoded) == moves.names(len(stages))
    assert all(number in moves.ranges[name] for name, number in encoded.items())
    if all(len(stage.options) == 1 for stage in stages) and not costs.stateful:
        assert moves.decode(encoded) == stages


@given(asked(), st.integers(0, 2**31))
def test_random_and_near_deployments_are_allowed_and_cost_in_a_batch_what_each_does(case, seed):
    costs, question = case
    moves, rng = Moves(costs, question), np.random.default_rng(seed)
    if question.stages is not None and question.stages > moves.most_stages:
        return
    start = moves.useful(moves.random(rng))
    assert moves.allows(start)
    near = list(moves.neighbours(start))
    assert len(set(near)) == len(near)
    assert start not in near
    deployments = [start, *near]
    evaluator = BatchEvaluator(costs, question)
    batch = evaluator.batch(deployments)
    loads = batch.loads(batch.part_loads(np.ones_like(evaluator.times), evaluator.overheads))
    plans = [evaluate(costs, stages) for stages in deployments]
    assert batch.periods(loads).tolist() == pytest.approx([plan.period for plan in plans])
    assert batch.latencies(loads).tolist() == pytest.approx([plan.latency for plan in plans])
    fitting = (batch.memory <= 1 + 1e-12) & (batch.periods(loads) < math.inf)
    assert fitting.tolist() == [fits(costs, plan) for plan in plans]
