"""The objectives of a study: throughput or latency."""

from typing import Any

import optuna
import pytest

from autosplit.deployment import Option, Row, Stage
from autosplit.errors import ConfigError
from autosplit.planner import CostModel, Kind, RowCosts, Transfer
from autosplit.report.dashboard.optuna_copy import copy
from autosplit.report.documents.record import read
from autosplit.report.documents.study import written
from autosplit.study.config.study_file import StudyConfig
from autosplit.study.export import export_stored_split
from autosplit.study.loop.open import open_study
from autosplit.study.loop.run import run_study
from autosplit.study.results import best_of_study
from autosplit.study.storage import storage_url
from studies.simulation.bench import SimulatedBench, Simulation, graph_of, on_devices
from tests.report.studies import store


@pytest.fixture
def new_study(tmp_path):
    def open_it(bench, objective, stages=None, **search):
        asked = {
            "stages": stages or len(bench.description.devices),
            # On local cores alone, replicas would be searched too.
            "devices": [f"cuda:{n}" for n in range(len(bench.description.devices))],
            "objective": objective,
        }
        config = StudyConfig.model_validate(
            {"name": "s", "model": "net.onnx", **asked, "search": search}
        )
        return open_study(config, bench, storage_url("s", str(tmp_path / "s.db")))

    return open_it


def weighted(stages: int = 3, ops: int = 10, auto: bool = False, **more: Any) -> SimulatedBench:
    """A chain with weights that do not follow the times, and tensors that cost to transfer."""
    times = tuple(float(3 + (7 * i) % 5) for i in range(ops))
    sizes = tuple(float(20 + (11 * i) % 13) for i in range(ops))
    tensors = tuple(Transfer(f"t{i}", i, (i + 1,), 8.0 + i % 3) for i in range(ops - 1))
    transfers = tuple(0.5 + i % 2 for i in range(ops - 1))
    names = tuple(f"op{i}" for i in range(ops))
    before = tuple(1 << i - 1 if i else 0 for i in range(ops))
    rows, kinds = (RowCosts(Row(), times),), (Kind("", transfers, transfers),)
    costs = CostModel("w", names, before, rows, kinds, tensors, sizes, activations=True)
    devices = [f"cuda:{i}" for i in range(stages)]
    simulation = Simulation(**{"error": 0.05, **more})
    question = on_devices(costs, devices, auto)
    return SimulatedBench(graph_of(costs), costs, question, devices, simulation)


def test_the_least_latency_leaves_most_devices_unused(new_study):
    bench = weighted(auto=True, noise=0.001)
    opened = new_study(bench, "latency", "auto", trials=8)
    run_study(opened)
    best = best_of_study(opened.study)
    assert best is not None
    assert len(best.record.stages) == 1
    assert best.record.latency_ms
    assert opened.study.trials[best.number].value == best.record.latency_ms.median
    whole = Stage(tuple(range(10)), (Option(bench.costs.rows[0].row),))
    assert opened.study.best_value <= 1.03 * bench.truth((whole,)).latency


def test_ten_stage_times_are_the_least_to_stop_for(new_study):
    opened = new_study(weighted(noise=1e-6), "latency", trials=20)
    run_study(opened)
    assert opened.study.user_attrs["result"]["stopped"].startswith("converged")
    assert len(opened.study.trials) >= 4  # of three stages


def test_the_best_is_that_of_the_latency_and_the_verdict_of_the_fastest(new_study):
    opened = new_study(weighted(), "latency", trials=10)
    run_study(opened)
    best = best_of_study(opened.study)
    assert best is not None
    assert opened.study.trials[best.number].value == opened.study.best_value
    assert written(read(opened.study), opened.url)["best"]["number"] == best.number
    assert read(opened.study).best().number == best.number
    names = copy(opened.study, read(opened.study)).metric_names
    assert names == opened.study.metric_names == ["latency in ms"]
    assert " latency;" in opened.study.user_attrs["result"]["verdict"]["text"]


def test_another_objective_is_another_study(new_study):
    run_study(new_study(weighted(), "throughput", trials=1))
    with pytest.raises(ConfigError, match="objective was 'throughput', is 'latency'"):
        new_study(weighted(), "latency")


def test_a_study_of_optuna_with_other_directions_is_refused(new_study, tmp_path):
    two = ["minimize", "minimize"]
    optuna.create_study(storage=f"sqlite:///{tmp_path / 's.db'}", study_name="s", directions=two)
    with pytest.raises(ConfigError, match="was not created by autosplit"):
        new_study(weighted(), "latency")


def test_a_study_whose_file_no_longer_reads_is_not_exported(new_study, tmp_path):
    opened = new_study(weighted(), "throughput", trials=1)
    run_study(opened)
    store(opened.study, config={"zoo": "branches", "stages": 2, "gone": 1})
    with pytest.raises(
        ConfigError, match="was not stored by this version of autosplit: unknown key 'gone'"
    ):
        export_stored_split(opened.study, tmp_path / "out")
