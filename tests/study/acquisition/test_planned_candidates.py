from __future__ import annotations

from collections.abc import Callable

import pytest

from autosplit.hardware.bench.interface import deployed
from autosplit.hardware.bench.simulated import SimulatedBench
from autosplit.planner import evaluate
from autosplit.study.acquisition.expected_improvement import PLANNED, outlook
from autosplit.study.acquisition.history import History
from autosplit.study.space.search_space import Space
from autosplit.study.surrogate.cost_correction import Measured

Make = Callable[..., SimulatedBench]


def test_after_many_trials_the_best_free_split_is_found_without_a_new_plan(
    branchy_bench: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = branchy_bench(blocks=4, branches=3, error=0.1)
    space = Space(bench.costs, 3)
    measured = []
    for number, stages in enumerate(space.best(bench.costs, PLANNED + 20)):
        measurement = bench.measure(deployed(bench, stages))
        measured.append(
            Measured(number, stages, measurement.stage_ms, measurement.period_ms.median)
        )
    taken = frozenset(space.key(m.stages) for m in measured)
    outlook(space, History(taken, tuple(measured[:-1])))
    monkeypatch.setattr("autosplit.study.space.search_space.k_best", None)
    view = outlook(space, History(taken, tuple(measured)))
    monkeypatch.undo()
    costs = view.corrected.contention_costs.all_busy
    best = next(s for s in space.best(costs, len(taken) + 1) if space.key(s) not in taken)
    assert evaluate(costs, view.free[0]).period == pytest.approx(evaluate(costs, best).period)
