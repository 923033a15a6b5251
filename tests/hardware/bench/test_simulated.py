"""Simulated hardware: its costs, its noise, and graph files."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from autosplit.cuts import cuts_of
from autosplit.errors import GraphError, StageError
from autosplit.hardware.bench.interface import deployed
from autosplit.hardware.bench.simulated import SimulatedBench, Simulation, graph_of
from autosplit.hardware.profiling.graph_file import read_graph
from autosplit.planner import CostModel, Transfer, evaluate, plan, to_workload

Make = Callable[..., SimulatedBench]
TWO = ["cores:0", "cores:1"]


def test_a_measurement_depends_on_seed_and_split_alone(chain_bench: Make) -> None:
    first, second = chain_bench(stages=2), chain_bench(stages=2)
    halves = deployed(first, plan(first.costs, 2).stages)
    second.measure(deployed(second, ((0,), tuple(range(1, 20)))))
    assert first.measure(halves) == second.measure(halves)


def test_without_error_and_noise_a_measurement_is_the_cost(chain_bench: Make) -> None:
    bench = chain_bench(stages=2, error=0.0, noise=0.0)
    halves = plan(bench.costs, 2)
    assert bench.measure(deployed(bench, halves.stages)).stage_ms == pytest.approx(halves.loads)


def test_overhead_and_contention_slow_every_stage(chain_bench: Make) -> None:
    bench = chain_bench(stages=3, error=0.0, noise=0.0, overhead=5.0, contention=0.1)
    split = plan(bench.costs, 3)
    assert bench.measure(deployed(bench, split.stages)).stage_ms == pytest.approx(
        [1.2 * load + 5.0 for load in split.loads]
    )


def test_stages_on_one_core_add_up(chain_bench: Make) -> None:
    bench = chain_bench(stages=3, error=0.0, noise=0.0)
    cores = ("cores:0", "cores:1", "cores:0")
    bench.description = replace(bench.description, devices=cores)
    measured = bench.measure(deployed(bench, plan(bench.costs, 3).stages))
    first, middle, last = measured.stage_ms
    assert measured.period_ms.median == pytest.approx(max(first + last, middle))


def test_another_seed_has_other_costs_and_identity(chain_bench: Make) -> None:
    assert chain_bench(seed=1).true != chain_bench(seed=2).true
    assert chain_bench(seed=1).identity != chain_bench(seed=2).identity


def test_a_graph_of_costs_has_the_same_cuts(branchy_bench: Make) -> None:
    costs = branchy_bench().costs
    assert graph_of(costs).predecessors == costs.predecessors
    assert len(cuts_of(graph_of(costs), plan(costs, 3).stages)) == 2


def test_a_graph_file_keeps_its_transfers(tmp_path: Path) -> None:
    costs = CostModel.from_graph(graph_of(chain_costs()), [[1.0, 2.0, 3.0]])
    document = to_workload(costs, 2)
    document["edges"] = [{**edge, "cost": 0.5} for edge in document["edges"]]
    (tmp_path / "g.json").write_text(json.dumps(document))
    costs = read_graph(tmp_path / "g.json")
    bench = SimulatedBench(graph_of(costs), costs, TWO, Simulation(error=0.0, noise=0.0))
    assert bench.measure(deployed(bench, ((0, 1), (2,)))).stage_ms == pytest.approx((3.5, 3.5))
    assert evaluate(bench.costs, ((0, 1), (2,))).period == 3.5


def chain_costs() -> CostModel:
    transfers = (Transfer("a", 0, (1,), 8.0), Transfer("b", 1, (2,), 8.0))
    return CostModel("c", ("a", "b", "c"), (0, 1, 2), ((1.0, 2.0, 3.0),), transfers)


def test_a_device_that_cannot_run_an_op_fails_the_candidate() -> None:
    costs = CostModel("c", ("a", "b"), (0, 1), ((1.0, 1.0), (1.0, float("inf"))))
    bench = SimulatedBench(graph_of(costs), costs, TWO, Simulation())
    with pytest.raises(StageError, match="'cores:1' cannot run"):
        bench.measure(deployed(bench, ((0,), (1,))))


@pytest.mark.parametrize("text", [None, "{", "[" * 9000, "{}"])
def test_a_file_without_a_graph_is_a_graph_error(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "g.json").write_text(text)
    with pytest.raises(GraphError, match=r"g\.json"):
        read_graph(tmp_path / "g.json")
