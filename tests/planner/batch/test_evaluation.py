from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from autosplit.hardware.bench.simulated import SimulatedBench
from autosplit.planner import CostModel, Transfer, evaluate
from autosplit.planner.batch.evaluation import Placing
from autosplit.study.acquisition.expected_improvement import PLANNED, outlook
from autosplit.study.acquisition.history import History
from autosplit.study.space.search_space import Space
from autosplit.study.surrogate.cost_correction import Measured

Make = Callable[..., SimulatedBench]


@pytest.mark.parametrize("devices", [1, 2])
def test_many_splits_cost_what_each_costs_alone(devices: int) -> None:
    moved = (
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
        moved,
        ((0.5, 0.25, 2.0),),
        ((0.125, 1.0, 4.0),),
    )
    splits = [((0,), (1, 2, 3)), ((0, 1), (2, 3)), ((0, 1, 2), (3,))]
    corrected = replace(
        costs, times=tuple(tuple(2 * t for t in row) for row in rows), overheads=(0.75,)
    )
    found = Placing(costs).pool(splits)
    assert found.loads(corrected) == pytest.approx(
        np.array([evaluate(corrected, s).loads for s in splits])
    )
    assert found.periods(corrected).argmin() == min(
        range(3), key=lambda n: evaluate(corrected, splits[n]).period
    )


def test_two_pools_together_cost_what_each_does(branchy_bench: Make) -> None:
    space = Space(branchy_bench().costs, 3)
    few, more = space.best(space.costs, 4), list(space.neighbours(space.plan()))
    both = space.placing.pool(few).and_those_of(space.placing.pool(more))
    whole = space.placing.pool([*few, *more])
    assert both.stages == whole.stages
    assert both.loads(space.costs).tolist() == whole.loads(space.costs).tolist()
    assert (
        both.memory.tolist()
        == whole.memory.tolist()
        == [space.memory(stages) for stages in both.stages]
    )


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
    pool = Placing(costs).pool([((), (0, 1), ()), ((0,), (), (1,)), ((0, 1), (), ())])
    assert pool.loads(costs).tolist() == [[0.0, 3.5, 0.0], [5.5, 0.0, 10.5], [3.5, 0.0, 0.0]]


def test_no_splits_have_no_periods(chain_bench: Make) -> None:
    costs = chain_bench().costs
    assert not Placing(costs).pool([]).periods(costs).size


def test_after_many_trials_the_best_free_split_is_found_without_a_new_plan(
    branchy_bench: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = branchy_bench(blocks=4, branches=3, error=0.1)
    space = Space(bench.costs, 3)
    measured = []
    for number, stages in enumerate(space.best(bench.costs, PLANNED + 20)):
        seen = bench.measure(stages)
        measured.append(Measured(number, stages, seen.stage_ms, seen.period_ms.median))
    taken = frozenset(space.key(m.stages) for m in measured)
    outlook(space, bench.devices, History(taken, tuple(measured[:-1])))
    monkeypatch.setattr("autosplit.study.space.search_space.k_best", None)
    view = outlook(space, bench.devices, History(taken, tuple(measured)))
    monkeypatch.undo()
    costs = view.corrected.costs
    best = next(s for s in space.best(costs, len(taken) + 1) if space.key(s) not in taken)
    assert evaluate(costs, view.free[0]).period == pytest.approx(evaluate(costs, best).period)
