"""Simulated hardware: its costs, its noise, graph files, and deployments of all shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autosplit.cuts import cuts_of
from autosplit.deployment import Deployment, Option, Row, Stage
from autosplit.errors import ConfigError, GraphError, StageError
from autosplit.hardware.profiling.graph_file import read_graph
from autosplit.planner import CostModel, Kind, Question, RowCosts, Transfer, evaluate, partition
from studies.simulation.bench import (
    NAME,
    SimulatedBench,
    Simulation,
    chain_of,
    graph_of,
    on_devices,
    with_threads,
)
from tests.study.conftest import space_of

Make = Callable[..., SimulatedBench]
OPS = 6


def plan_of(bench: SimulatedBench) -> Deployment:
    space = space_of(bench)
    return space.deployment(space.plan.stages)


def test_a_measurement_depends_on_seed_and_split_alone(chain_bench: Make) -> None:
    first, second = chain_bench(stages=2), chain_bench(stages=2)
    halves = plan_of(first)
    option = halves.stages[0].options
    second.measure(Deployment((Stage((0,), option), Stage(tuple(range(1, 20)), option))))
    assert first.measure(halves) == second.measure(halves)
    assert chain_bench(seed=1).true != chain_bench(seed=2).true
    first, second = (chain_bench(seed=seed).description for seed in (1, 2))
    assert first.identity != second.identity


def test_overhead_and_contention_slow_every_stage(chain_bench: Make) -> None:
    bench = chain_bench(stages=3, error=0.0, noise=0.0, overhead=5.0, contention=0.1)
    loads = space_of(bench).plan.loads
    expected = [1.2 * load + 5.0 for load in loads]
    assert bench.measure(plan_of(bench)).stage_ms == pytest.approx(expected)


def test_stages_on_one_core_add_up(chain_bench: Make) -> None:
    bench = chain_bench(stages=3, error=0.0, noise=0.0)
    bench.description = replace(bench.description, devices=("cores:0", "cores:1", "cores:0"))
    measured = bench.measure(plan_of(bench))
    first, middle, last = measured.stage_ms
    assert measured.period_ms.median == pytest.approx(max(first + last, middle))


def test_a_graph_of_costs_has_the_same_cuts_and_transfers(branchy_bench: Make) -> None:
    costs = branchy_bench().costs
    assert graph_of(costs).predecessors == costs.predecessors
    assert len(cuts_of(graph_of(costs), space_of(branchy_bench()).plan.split)) == 2
    transfers = (Transfer("a", 0, (1,), 8.0), Transfer("b", 1, (2,), 8.0))
    rows, kinds = (RowCosts(Row(), (1.0, 2.0, 3.0)),), (Kind("", (0.5, 0.5), (0.5, 0.5)),)
    costs = CostModel("c", ("a", "b", "c"), (0, 1, 2), rows, kinds, transfers)
    devices = ["cores:0", "cores:1"]
    question = on_devices(costs, devices)
    bench = SimulatedBench(graph_of(costs), costs, question, devices, Simulation(0.0, 0.0))
    option = (Option(Row("", NAME)),)
    stages = (Stage((0, 1), option), Stage((2,), option))
    assert bench.measure(Deployment(stages)).stage_ms == pytest.approx((3.5, 3.5))
    assert evaluate(bench.costs, stages).period == 3.5


def test_a_device_that_cannot_run_an_op_fails_the_candidate() -> None:
    rows = (RowCosts(Row("x"), (1.0, 1.0)), RowCosts(Row("y"), (1.0, math.inf)))
    costs = CostModel("c", ("a", "b"), (0, 1), rows, (Kind("x"), Kind("y")))
    devices = ["cuda:0", "cuda:1"]
    bench = SimulatedBench(graph_of(costs), costs, on_devices(costs, devices), devices)
    places = zip((0, 1), "xy", devices, strict=True)
    stages = [Stage((n,), (Option(Row(k, NAME), 1, (d,)),)) for n, k, d in places]
    with pytest.raises(StageError, match="'cuda:1' cannot run"):
        bench.measure(Deployment(tuple(stages)))


@pytest.mark.parametrize("text", [None, "{", "[" * 9000, "{}"])
def test_a_file_without_a_graph_is_a_graph_error(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "g.json").write_text(text)
    with pytest.raises(GraphError, match=r"g\.json"):
        read_graph(tmp_path / "g.json")


def cores(
    count: int = 4, memory: float = math.inf, streams: int = 0, **more: Any
) -> SimulatedBench:
    graph, costs = chain_of(OPS, 0)
    if streams:
        costs = replace(costs, states=(("h", 1),), streams=streams)
    kinds = (replace(costs.kinds[0], memory=memory),)
    costs = replace(costs, sizes=(1.0,) * OPS, kinds=kinds, activations=False)
    costs = with_threads(costs, [count], more.pop("thread_share", 0.7))
    names = [f"cores:{n}" for n in range(count)]
    simulation = Simulation(**{"error": 0.0, "noise": 0.0, **more})
    return SimulatedBench(graph, costs, Question.of_cores({"0": count}), names, simulation)


def on(split: Sequence[Sequence[int]], replicas: Sequence[int], threads: int = 1) -> Deployment:
    row = Row("0", NAME, threads)
    pairs = zip(split, replicas, strict=True)
    return Deployment(tuple(Stage(tuple(ops), (Option(row, count),)) for ops, count in pairs))


WHOLE, HALVES = (range(OPS),), (range(3), range(3, OPS))


def test_replicas_divide_the_period_and_threads_the_latency() -> None:
    bench = cores(thread_share=0.5)
    one = bench.measure(on(WHOLE, [1]))
    replicas, threads = bench.measure(on(WHOLE, [4])), bench.measure(on(WHOLE, [1], 4))
    assert replicas.period_ms.median == pytest.approx(one.period_ms.median / 4)
    assert replicas.latency_ms.median == pytest.approx(one.latency_ms.median)
    assert threads.latency_ms.median == pytest.approx(one.latency_ms.median / 2.5)


def test_every_busy_core_slows_all_others_down() -> None:
    slow, quick = cores(contention=0.1), cores()
    halves = on(HALVES, [2, 1])
    ratio = slow.measure(halves).stage_ms[0] / quick.measure(halves).stage_ms[0]
    assert ratio == pytest.approx(1.2)


def test_replicas_of_a_stage_with_states_hold_whole_streams() -> None:
    three, one = cores(streams=3), cores(streams=1)
    whole, halves = on(WHOLE, [2]), on(HALVES, [1, 3])
    load = one.measure(whole).period_ms.median
    assert three.measure(whole).period_ms.median == pytest.approx(load * 2 / 3)
    # The second half has no state.
    first, second = one.measure(halves).stage_ms
    assert one.measure(halves).period_ms.median == pytest.approx(max(first, second / 3))
    copies = {bench: {b.name: b.copies for b in bench.baselines()} for bench in (three, one)}
    assert [named["replicas"] for named in copies.values()] == [3, 1]


def test_the_optimum_is_no_worse_than_any_corner_and_keeps_the_memory() -> None:
    bench = cores(error=0.4, contention=0.05)
    corners = [on(WHOLE, [4]), on(WHOLE, [1], 4), on(HALVES, [2, 2])]
    assert bench.optimum().period <= min(bench.truth(d.stages).period for d in corners)
    assert max(cores(memory=4.0).optimum().memory) <= 4.0
    assert partition(bench.costs, bench.question).period > 0


def test_half_of_the_error_is_the_same_for_all_numbers_of_threads() -> None:
    graph, costs = chain_of(2000, 0)
    names = [f"cores:{n}" for n in range(4)]
    question = Question.of_cores({"0": 4})
    bench = SimulatedBench(graph, with_threads(costs, [4], 0.7), question, names, Simulation(0.4))
    times = [np.array([row.times for row in c.rows]) for c in (bench.true, bench.costs)]
    errors = np.log(times[0] / times[1])
    assert errors.std(axis=1) == pytest.approx([0.4] * 3, rel=0.1)
    assert np.corrcoef(errors)[0, 1] == pytest.approx(0.5, abs=0.1)


def test_each_kind_of_cores_has_a_speed() -> None:
    _, costs = chain_of(OPS, 0)
    table = with_threads(costs, [2, 1], 0.7, [1.0, 0.5])
    assert [(row.row.kind, row.row.threads) for row in table.rows] == [("0", 1), ("0", 2), ("1", 1)]
    assert table.rows[2].times[0] == pytest.approx(2 * table.rows[0].times[0])
    with pytest.raises(ConfigError, match="1 numbers for 2 kinds"):
        with_threads(costs, [2, 1], 0.7, [1.0])
