"""Throughput, latency and memory, alone and together."""

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosplit.cli import main
from autosplit.deployment import Deployment
from autosplit.errors import ConfigError, StageError
from autosplit.hardware.bench.simulated import SimulatedBench, Simulation, graph_of
from autosplit.hardware.measurement.results import Measurement
from autosplit.planner import evaluate, plan
from autosplit.planner.dominance import front, hypervolume, volume_gain
from autosplit.report.dashboard.snapshot import copy
from autosplit.report.documents.record import read
from autosplit.report.documents.study import document
from autosplit.study.acquisition.front_candidates import memory_costs
from autosplit.study.acquisition.sampler import SAMPLERS as NAMES
from autosplit.study.config.objectives import of_study
from autosplit.study.config.study_file import StudyConfig
from autosplit.study.export import export_stored_split
from autosplit.study.loop.open import OpenStudy, open_study
from autosplit.study.loop.run import run_study
from autosplit.study.persistence.records import KEY
from autosplit.study.persistence.storage import storage_url
from autosplit.study.progress import Progress
from autosplit.study.space.search_space import Space
from autosplit.study.trials.results import best_trial
from tests.planner.strategies import models

Make = Callable[..., SimulatedBench]
BOTH = ["throughput", "memory"]
ALL = ["throughput", "latency", "memory"]
CELLS = st.lists(st.tuples(*[st.integers(0, 5)] * 3), max_size=6)


@pytest.fixture
def new_study(tmp_path: Path) -> Callable[..., OpenStudy]:
    def open_it(bench: Any, objective: Any, stages: Any = None, **search: Any) -> OpenStudy:
        asked = {
            "stages": stages or len(bench.devices),
            # On local cores alone, replicas would be searched too.
            "devices": [f"cuda:{n}" for n in range(len(bench.devices))],
            "objective": objective,
        }
        config = StudyConfig.model_validate(
            {"name": "s", "runtime": "simulated", **asked, "search": search}
        )
        return open_study(config, bench, storage_url("s", str(tmp_path / "s.db")), Progress())

    return open_it


def weighted(stages: int = 3, ops: int = 10, **simulation: Any) -> SimulatedBench:
    """A chain with weights that do not follow the times, and tensors that cost to transfer."""
    from autosplit.planner import CostModel, Transfer

    times = tuple(float(3 + (7 * i) % 5) for i in range(ops))
    sizes = tuple(float(20 + (11 * i) % 13) for i in range(ops))
    tensors = tuple(Transfer(f"t{i}", i, (i + 1,), 8.0 + i % 3) for i in range(ops - 1))
    transfers = (tuple(0.5 + i % 2 for i in range(ops - 1)),)
    names = tuple(f"op{i}" for i in range(ops))
    before = tuple(1 << i - 1 if i else 0 for i in range(ops))
    costs = CostModel(
        "w", names, before, (times,), tensors, transfers, transfers, sizes=sizes, activations=True
    )
    return SimulatedBench(
        graph_of(costs),
        costs,
        [f"cores:{i}" for i in range(stages)],
        Simulation(**{"error": 0.05, **simulation}),
    )


@given(CELLS)
def test_the_volume_is_that_of_the_cells_that_are_dominated(points: list[tuple[int, ...]]) -> None:
    cells = sum(
        any(all(x <= c for x, c in zip(p, cell, strict=True)) for p in points)
        for cell in product(range(5), repeat=3)
    )
    assert hypervolume(points, (5, 5, 5)) == pytest.approx(cells)


@given(CELLS, st.tuples(*[st.integers(0, 5)] * 3))
def test_a_gain_is_the_difference_of_volumes(
    points: list[tuple[int, ...]], point: tuple[int, ...]
) -> None:
    reference = (5, 5, 5)
    more = hypervolume([*points, point], reference) - hypervolume(points, reference)
    assert volume_gain(point, points, reference) == pytest.approx(more)


def test_the_front_is_what_no_other_dominates() -> None:
    assert front([(1, 4), (2, 2), (3, 3), (2, 2), (4, 1), (4, 2)]) == [0, 1, 3, 4]


@given(models(most=6, memory=True))
@settings(deadline=None, max_examples=40)
def test_the_planner_finds_the_least_memory(costs: Any) -> None:
    space = Space(costs, 1) if len(costs.contraction.groups) < 2 else Space(costs, 2)
    memory_bytes = [space.memory(stages) for stages in space.listed]
    if memory_bytes:
        least = plan(memory_costs(costs), space.stages)
        assert least.period == max(evaluate(costs, least.stages).memory) == min(memory_bytes)


def test_memory_alone_takes_one_trial(new_study: Callable[..., OpenStudy]) -> None:
    opened = new_study(weighted(), "memory", trials=20)
    run_study(opened, Progress())
    assert [t.values for t in opened.study.trials] == [
        [min(map(opened.space.memory, opened.space.listed))]
    ]
    assert opened.study.user_attrs["stopped"].startswith(
        "converged: no remaining candidate is expected to beat the best"
    )


def test_the_least_latency_leaves_most_devices_unused(new_study: Callable[..., OpenStudy]) -> None:
    opened = new_study(weighted(noise=0.001), "latency", "auto", trials=8)
    run_study(opened, Progress())
    best = best_trial(opened.study.trials, opened.study.user_attrs)
    assert best is not None
    assert sum(map(bool, opened.space.split(best[0].user_attrs[KEY]))) == 1
    assert best[0].value == best[0].user_attrs["latency_ms"]["median"]


@pytest.mark.parametrize(
    ("objective", "stages"), [(BOTH, 3), (ALL, 3), (ALL, "auto"), (["memory", "latency"], 3)]
)
def test_the_front_is_found(
    new_study: Callable[..., OpenStudy], objective: list[str], stages: Any
) -> None:
    bench = weighted(noise=0.001)
    opened = new_study(bench, objective, stages, trials=60)
    run_study(opened, Progress())
    assert opened.study.user_attrs["stopped"].startswith("converged")
    assert len(opened.study.trials) < len(opened.space.listed)
    known = {"throughput": 0, "latency": 1, "memory": 2}
    costs = [bench.truth(s) for s in opened.space.listed]
    true = [
        [(p.period, p.latency, max(p.memory))[known[name]] for name in objective] for p in costs
    ]
    measured_front = [t.values for t in opened.study.best_trials]
    for point in (true[n] for n in front(true)):
        assert any(
            all(f <= 1.03 * x for f, x in zip(values, point, strict=True))
            for values in measured_front
        )


def test_ten_stage_times_are_the_least_to_stop_for(new_study: Callable[..., OpenStudy]) -> None:
    opened = new_study(weighted(noise=1e-6), "latency", trials=20)
    run_study(opened, Progress())
    assert opened.study.user_attrs["stopped"].startswith("converged")
    assert len(opened.study.trials) == 4  # of three stages


@pytest.mark.parametrize("sampler", NAMES)
def test_every_sampler_proposes_for_several_objectives(
    new_study: Callable[..., OpenStudy], sampler: str
) -> None:
    opened = new_study(weighted(ops=8), ALL, trials=5, sampler=sampler, converge=False)
    run_study(opened, Progress())
    assert len({t.user_attrs[KEY] for t in opened.study.trials}) == 5
    assert all(len(t.values) == 3 for t in opened.study.trials)


def test_show_and_reports_mark_the_front(new_study: Callable[..., OpenStudy]) -> None:
    opened = new_study(weighted(), BOTH, trials=8)
    run_study(opened, Progress())
    shown = document(opened.study, opened.url)
    assert shown["pareto"] == [t.number for t in opened.study.best_trials]
    best = best_trial(opened.study.trials, opened.study.user_attrs)
    assert best is not None
    assert shown["best"]["number"] == best[0].number
    assert opened.study.metric_names == ["period in ms", "memory of the largest stage in bytes"]
    assert shown["verdict"]["text"].count("the best split into")
    assert [t.values for t in copy(opened.study).trials] == [t.values for t in opened.study.trials]
    record = read(opened.study)
    assert record.best().number == shown["best"]["number"]  # type: ignore[union-attr]
    assert record.objectives == of_study(opened.study.user_attrs) == ("throughput", "memory")


def test_the_best_is_that_of_the_first_objective_and_the_verdict_of_the_fastest(
    new_study: Callable[..., OpenStudy],
) -> None:
    opened = new_study(weighted(), ["memory", "throughput"], trials=10)
    run_study(opened, Progress())
    complete = opened.study.trials
    best = best_trial(complete, opened.study.user_attrs)
    assert best is not None
    assert best[0].values[0] == min(t.values[0] for t in complete)
    assert read(opened.study).best().number == best[0].number  # type: ignore[union-attr]
    assert "the fastest split into" in opened.study.user_attrs["verdict"]["text"]


def test_stagnation_counts_from_the_last_that_lay_beyond_the_front(
    new_study: Callable[..., OpenStudy],
) -> None:
    opened = new_study(weighted(noise=0.0), BOTH, trials=60, sampler="random", stagnation=3)
    run_study(opened, Progress())
    assert opened.study.user_attrs["stopped"].startswith("stopped: no improvement")
    last = opened.study.trials[-4].values
    assert all(
        any(a > b for a, b in zip(t.values, last, strict=True)) for t in opened.study.trials[:-4]
    )


def test_another_objective_is_another_study(new_study: Callable[..., OpenStudy]) -> None:
    run_study(new_study(weighted(), BOTH, trials=1), Progress())
    with pytest.raises(ConfigError, match="objective was 'throughput, memory', is 'latency'"):
        new_study(weighted(), "latency")


def test_a_study_of_optuna_with_other_directions_is_refused(
    new_study: Callable[..., OpenStudy], tmp_path: Path
) -> None:
    optuna.create_study(storage=f"sqlite:///{tmp_path / 's.db'}", study_name="s")
    with pytest.raises(ConfigError, match="was not created by autosplit"):
        new_study(weighted(), BOTH)


@pytest.mark.parametrize(
    "objective", ["speed", [], ["latency", "latency"], [1], 3, ["throughput", "speed"]]
)
def test_an_objective_that_is_none_is_message(tmp_path: Path, objective: Any) -> None:
    from autosplit.study.config.study_file import load

    (tmp_path / "s.toml").write_text(f'zoo = "x"\nstages = 2\nobjective = {json.dumps(objective)}')
    with pytest.raises(
        ConfigError,
        match=r"objective is .*give throughput, latency, memory or a list of them, each once",
    ):
        load(tmp_path / "s.toml")


def test_a_trial_that_failed_is_not_exported(
    new_study: Callable[..., OpenStudy], tmp_path: Path
) -> None:
    bench = weighted()
    measure = bench.measure

    def broken(deployment: Deployment) -> Measurement:
        if len(opened.study.trials) == 2:
            raise StageError("stage 1 said no")
        return measure(deployment)

    bench.measure = broken  # type: ignore[method-assign]
    opened = new_study(bench, BOTH, trials=3)
    run_study(opened, Progress())
    for number, message in (
        (1, r"trial 1 failed \(stage 1 said no\)"),
        (7, "trial 7 does not exist"),
    ):
        with pytest.raises(
            ConfigError, match=rf"{message}; those that can be exported are \[0, 2\]"
        ):
            export_stored_split(opened.study, tmp_path / "out", number)


def test_a_study_whose_file_no_longer_reads_is_not_exported(
    new_study: Callable[..., OpenStudy], tmp_path: Path
) -> None:
    opened = new_study(weighted(), BOTH, trials=1)
    run_study(opened, Progress())
    opened.study.set_user_attr("config", {"zoo": "branches", "stages": 2, "gone": 1})
    with pytest.raises(
        ConfigError, match="was not stored by this version of autosplit: unknown key 'gone'"
    ):
        export_stored_split(opened.study, tmp_path / "out")


STUDY = """
runtime = "simulated"
stages = 3
objective = ["throughput", "latency"]
[search]
trials = 6
sampler = "random"
[simulated]
ops = 12
overhead = 1.0
"""


def test_the_command_runs_and_shows_a_front(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.toml").write_text(STUDY)
    assert main(["run", "m.toml", "-f", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    points = [(t["period_ms"]["median"], t["latency_ms"]["median"]) for t in shown["trials"]]
    assert shown["pareto"] == front(points)
    assert shown["study"]["objective"] == ["throughput", "latency"]
    assert main(["show", "m.db"]) == 0
    assert capsys.readouterr().out.count("front") == (
        len(shown["pareto"]) if len(shown["pareto"]) > 1 else 0
    )
