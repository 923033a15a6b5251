from dataclasses import replace

import numpy as np
import pytest

from autosplit.planner import CostModel, Transfer, evaluate, k_best
from autosplit.planner.batch.evaluation import BatchEvaluator
from tests.planner.graphs import branchy


@pytest.mark.parametrize("devices", [1, 2])
def test_many_splits_cost_what_each_costs_alone(devices: int) -> None:
    transfers = (
        Transfer("a", 0, (1, 2), 8.0),
        Transfer("b", 1, (2,), 8.0),
        Transfer("c", 2, (3,), 8.0),
    )
    rows = tuple(tuple(row) for row in np.random.default_rng(0).random((devices, 4)).tolist())
    costs = CostModel(
        "c",
        ("a", "b", "c", "d"),
        (0, 1, 3, 4),
        rows,
        transfers,
        ((0.5, 0.25, 2.0),),
        ((0.125, 1.0, 4.0),),
    )
    splits = [((0,), (1, 2, 3)), ((0, 1), (2, 3)), ((0, 1, 2), (3,))]
    corrected = replace(
        costs, times=tuple(tuple(2 * t for t in row) for row in rows), overheads=(0.75,)
    )
    batch = BatchEvaluator(costs).batch(splits)
    assert batch.times(corrected) == pytest.approx(
        np.array([evaluate(corrected, s).loads for s in splits])
    )
    assert batch.periods(corrected).argmin() == min(
        range(3), key=lambda n: evaluate(corrected, splits[n]).period
    )


def test_joined_batches_cost_what_each_does() -> None:
    costs = branchy(3, 3, size=1.0)
    plans = k_best(costs, 3, 12)
    splits, evaluator = [plan.stages for plan in plans], BatchEvaluator(costs)
    both = evaluator.batch(splits[:4]).joined(evaluator.batch(splits[4:]))
    assert both.stages == tuple(splits)
    assert both.times(costs).tolist() == evaluator.batch(splits).times(costs).tolist()
    assert both.times(costs) == pytest.approx(np.array([plan.loads for plan in plans]))
    assert both.memory.tolist() == pytest.approx([max(plan.memory) for plan in plans])


def test_an_empty_stage_costs_nothing() -> None:
    costs = CostModel(
        "c",
        ("a", "b"),
        (0, 1),
        ((1.0, 2.0),),
        (Transfer("t", 0, (1,), 8.0),),
        ((4.0,),),
        ((8.0,),),
        (0.5,),
    )
    batch = BatchEvaluator(costs).batch([((), (0, 1), ()), ((0,), (), (1,)), ((0, 1), (), ())])
    assert batch.times(costs).tolist() == [[0.0, 3.5, 0.0], [5.5, 0.0, 10.5], [3.5, 0.0, 0.0]]


def test_no_splits_have_no_periods() -> None:
    costs = branchy(3, 3)
    assert not BatchEvaluator(costs).batch([]).periods(costs).size
