from collections.abc import Callable

import numpy as np
import pytest

from autosplit.cuts.stages import Stages
from autosplit.hardware.bench.interface import deployed
from autosplit.hardware.bench.simulated import SimulatedBench
from autosplit.planner import CostModel
from autosplit.study.surrogate.cost_correction import Measured, correct

Make = Callable[..., SimulatedBench]
TWO = ("cores:0", "cores:1")
CHAIN = CostModel("c", ("a", "b", "c", "d"), (0, 1, 2, 4), ((1.0, 1.0, 1.0, 1.0),))
HALVES: Stages = ((0, 1), (2, 3))


def measured(number: int, stages: Stages, *stage_ms: float) -> Measured:
    return Measured(number, stages, stage_ms, max(stage_ms))


def test_nothing_measured_changes_nothing() -> None:
    corrected = correct(CHAIN, TWO, [])
    assert corrected.contention_costs.all_busy.times == CHAIN.times
    assert corrected.period(HALVES) == 2.0


def test_what_was_measured_is_what_is_expected() -> None:
    corrected = correct(CHAIN, TWO, [measured(0, HALVES, 4.0, 2.0)])
    assert corrected.period(HALVES) == pytest.approx(4.0, rel=0.1)


def test_ops_of_a_slow_stage_are_corrected_up_and_the_others_less() -> None:
    times = correct(CHAIN, TWO, [measured(0, HALVES, 4.0, 2.0)]).contention_costs.all_busy.times
    assert all(row[0] == pytest.approx(row[1]) for row in times)
    assert all(row[0] > 1.3 * row[2] for row in times)


def test_two_cuts_tell_what_lies_between_them() -> None:
    trials = [measured(0, HALVES, 2.0, 5.0), measured(1, ((0, 1, 2), (3,)), 6.0, 1.0)]
    slow = correct(CHAIN, TWO, trials).contention_costs.all_busy.times[0]
    assert slow[2] == max(slow) > 2.0


def test_error_and_noise_are_found_from_the_measurements(chain_bench: Make) -> None:
    bench = chain_bench(ops=60, stages=3, error=0.4, noise=0.01)
    rng = np.random.default_rng(0)
    cuts = [sorted(rng.choice(range(5, 55), 2, replace=False).tolist()) for _ in range(12)]
    splits = [(tuple(range(a)), tuple(range(a, b)), tuple(range(b, 60))) for a, b in cuts]
    times = [bench.measure(deployed(bench, stages)).stage_ms for stages in splits]
    trials = [measured(n, s, *times[n]) for n, s in enumerate(splits)]
    corrected = correct(bench.costs, bench.devices, trials)
    assert 0.2 <= corrected.error <= 0.8
    assert corrected.noise <= 0.02


def test_another_kind_of_device_learns_half() -> None:
    trials = [measured(0, HALVES, 4.0, 2.0)]
    model = CostModel("c", CHAIN.names, CHAIN.predecessors, (CHAIN.times[0], CHAIN.times[0]))
    alike, other = (
        correct(model, devices, trials).contention_costs.all_busy
        for devices in (TWO, ("cores:0", "cuda:0"))
    )
    assert len(alike.times) == 1
    assert other.times[1][0] < other.times[0][0]


def test_a_device_that_cannot_run_an_op_still_cannot() -> None:
    model = CostModel(
        "c", CHAIN.names, CHAIN.predecessors, ((1.0, 1.0, 1.0, 1.0), (float("inf"), 1.0, 1.0, 1.0))
    )
    times = correct(model, TWO, [measured(0, HALVES, 4.0, 2.0)]).contention_costs.all_busy.times
    assert times[1][0] == float("inf")
    assert np.isfinite(times[1][1:]).all()


def test_a_period_above_the_slowest_stage_is_expected_again() -> None:
    trials = [Measured(0, HALVES, (2.0, 2.0), 2.2)]
    assert correct(CHAIN, TWO, trials).ratio == pytest.approx(1.1)


def test_costs_of_zero_do_no_harm() -> None:
    model = CostModel("c", CHAIN.names, CHAIN.predecessors, ((0.0, 0.0, 0.0, 0.0),))
    assert correct(model, TWO, [measured(0, HALVES, 1.0, 0.0)]).period(HALVES) >= 0
