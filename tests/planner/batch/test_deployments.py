"""Deployments timed as arrays cost what the plain arithmetic says."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.cuts import members
from autosplit.planner import CostModel, decode, evaluate_deployment
from autosplit.planner.batch.deployments import (
    DeployedSplit,
    DeploymentEvaluator,
    two_stage_periods,
)
from autosplit.planner.problem.contention import ContentionCosts
from tests.planner.strategies import models, with_states

COUNTS = (1, 2)


@st.composite
def deployments(draw: Any) -> tuple[Any, list[DeployedSplit]]:
    """A model with costs for one and two threads, and some deployments of it."""
    model = replace(draw(with_states(draw(models(devices=2)))), groups=())
    chosen = []
    for _ in range(draw(st.integers(1, 4))):
        shares = draw(st.lists(st.floats(0, 1), max_size=len(model.names) - 1))
        ends = [0, *decode(model, shares), (1 << len(model.names)) - 1]
        pairs = pairwise(ends)
        stages = tuple(tuple(members(after & ~before)) for before, after in pairs)
        numbers = st.lists(st.integers(1, 3), min_size=len(stages), max_size=len(stages))
        threads = st.lists(st.sampled_from(COUNTS), min_size=len(stages), max_size=len(stages))
        chosen.append(DeployedSplit(stages, tuple(draw(numbers)), tuple(draw(threads))))
    return model, chosen


def plain(model: Any, d: DeployedSplit) -> Any:
    return evaluate_deployment(model, d.stages, d.replicas, d.threads, COUNTS)


@given(deployments())
def test_a_batch_costs_what_each_deployment_costs(known: Any) -> None:
    model, chosen = known
    evaluator = DeploymentEvaluator(model, COUNTS)
    batch = evaluator.batch(chosen)
    plans = [plain(model, d) for d in chosen]
    assert batch.periods(model).tolist() == pytest.approx([p.period for p in plans])
    assert batch.memory.tolist() == pytest.approx([max(p.memory) for p in plans])
    assert [evaluator.shape(d).loads(model) for d in chosen] == [p.loads for p in plans]


@given(deployments())
def test_contention_lies_between_one_busy_core_and_all(known: Any) -> None:
    model, chosen = known
    slow = tuple(tuple(3 * time for time in row) for row in model.times)
    most = max(d.cores for d in chosen)
    contention = ContentionCosts(model, replace(model, times=slow), most)
    batch = DeploymentEvaluator(model, COUNTS).batch(chosen)
    expected = [plain(contention.at(d.cores), d).period for d in chosen]
    assert batch.periods(contention).tolist() == pytest.approx(expected)
    level = 1 + 2 * (chosen[0].cores - 1) / (most - 1) if most > 1 else 3
    times = contention.at(chosen[0].cores).times[0]
    assert list(times) == pytest.approx([level * time for time in model.times[0]])


@given(models(devices=2))
def test_no_deployments_are_an_empty_batch(model: Any) -> None:
    batch = DeploymentEvaluator(model, COUNTS).batch([])
    assert len(batch.periods(model)) == len(batch.memory) == 0


def test_a_model_that_cannot_be_cut_has_no_periods_of_two_stages() -> None:
    assert two_stage_periods(CostModel("m", ("a",), (0,), ((1.0,),)), [2], [1]) == {}
