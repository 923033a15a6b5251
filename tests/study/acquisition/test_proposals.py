from collections.abc import Callable

import pytest

from autosplit.hardware.bench.interface import deployed
from autosplit.hardware.bench.simulated import SimulatedBench
from autosplit.planner import CostModel
from autosplit.study.acquisition import expected_improvement as outlooks
from autosplit.study.acquisition import proposals
from autosplit.study.acquisition.candidate_sources import Effort, PlannedSpace, TableSplits
from autosplit.study.acquisition.expected_improvement import outlook
from autosplit.study.acquisition.history import History, generator
from autosplit.study.acquisition.proposals import planned
from autosplit.study.loop.comparison import finalists
from autosplit.study.space.search_space import Space
from autosplit.study.surrogate.cost_correction import Measured, correct

Make = Callable[..., SimulatedBench]


def history(bench: SimulatedBench, space: Space, trials: int) -> History:
    """What a study knows after some trials."""
    measured: list[Measured] = []
    for number in range(trials):
        known = History(frozenset(space.key(m.stages) for m in measured), tuple(measured))
        stages = planned(space, "throughput", known, generator(0, number))
        assert stages is not None
        measurement = bench.measure(deployed(bench, stages))
        measured.append(
            Measured(number, stages, measurement.stage_ms, measurement.period_ms.median)
        )
    return History(frozenset(space.key(m.stages) for m in measured), tuple(measured))


def test_gains_are_told_of_free_splits_only(branchy_bench: Make) -> None:
    bench = branchy_bench(blocks=4)
    space = Space(bench.costs, 3)
    known = history(bench, space, 4)
    gains = outlook(space, known).gains
    assert not {space.key(stages) for stages in gains} & known.taken
    assert all(gain >= 0 for gain in gains.values())


def test_the_split_of_largest_gain_is_next(
    branchy_bench: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proposals, "EXPLORATION", 0.0)
    bench = branchy_bench(blocks=4)
    space = Space(bench.costs, 3)
    known = history(bench, space, 3)
    view = outlook(space, known)
    assert view.gains[planned(space, "throughput", known, generator(0, 3)) or ()] == max(
        view.gains.values()
    )


def test_exact_costs_converge_as_soon_as_that_can_be_known(chain_bench: Make) -> None:
    bench = chain_bench(ops=30, stages=3, error=0.0, noise=0.001)
    space = Space(bench.costs, 3)
    assert not outlook(space, history(bench, space, 2)).converged
    assert outlook(space, history(bench, space, 5)).converged


@pytest.mark.parametrize(("stages", "trials"), [(2, 5), (3, 4), (4, 3)])
def test_ten_stage_times_of_three_trials_are_the_least_to_stop_for(
    chain_bench: Make, stages: int, trials: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PlannedSpace, "effort", Effort(draws=4, planned=4, worth=9.0))
    bench = chain_bench(ops=30, stages=stages)
    space = Space(bench.costs, stages)
    assert [outlook(space, history(bench, space, n)).converged for n in (trials - 1, trials)] == [
        0,
        1,
    ]


def test_graphs_with_too_many_cuts_are_searched_alike(
    branchy_bench: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = branchy_bench(blocks=3, branches=2)
    quick = history(bench, Space(bench.costs, 3), 4)
    monkeypatch.setattr("autosplit.planner.batch.stage_table.ENTRIES", 10)
    space = Space(bench.costs, 3)
    assert space.stage_table is None
    slow = history(bench, space, 4)
    assert slow.measured[0].stages == quick.measured[0].stages
    assert len(slow.taken) == 4


def test_with_too_many_cuts_the_exact_plan_is_ahead_and_gains_grow_by_moves(
    branchy_bench: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autosplit.planner.batch.stage_table.ENTRIES", 2_500)  # 50 cuts of 219
    bench = branchy_bench(blocks=6, stages=4)
    space = Space(bench.costs, 4)
    known = history(bench, space, 5)
    view = outlook(space, known)
    assert isinstance(view.source, TableSplits)
    assert len(view.source.table.cuts) <= 52
    assert not {space.key(stages) for stages in view.gains} & known.taken
    best = max(view.gains, key=view.gains.__getitem__)
    neighbours = {
        stages for stages in space.neighbours(best) if space.key(stages) not in known.taken
    }
    assert neighbours <= view.gains.keys()
    plan = space.best(view.corrected.contention_costs, 1)[0]
    assert view.free[0] == plan or space.key(plan) in known.taken


def test_with_too_many_cuts_many_trials_are_weighed_alike(
    branchy_bench: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autosplit.planner.batch.stage_table.ENTRIES", 2_500)
    monkeypatch.setattr(outlooks, "PLANNED", 4)
    bench = branchy_bench(blocks=6, stages=4)
    known = history(bench, Space(bench.costs, 4), 7)
    again = history(bench, Space(bench.costs, 4), 7)
    assert len(known.taken) == 7
    assert [m.stages for m in again.measured] == [m.stages for m in known.measured]


def test_a_lucky_measurement_alone_makes_no_finalist_of_a_bad_split() -> None:
    costs = CostModel("c", ("a", "b", "c", "d"), (0, 1, 2, 4), ((1.0, 1.0, 1.0, 1.0),))
    measured = [
        Measured(0, ((0, 1), (2, 3)), (2.0, 2.0), 2.0),
        Measured(1, ((0,), (1, 2, 3)), (1.0, 3.0), 3.0),
        Measured(2, ((0, 1, 2), (3,)), (3.0, 1.0), 3.0),
    ]
    assert finalists(correct(costs, ("cores:0", "cores:1"), measured), measured) == measured[:1]
