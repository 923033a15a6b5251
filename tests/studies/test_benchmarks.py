import importlib
import json
import mmap
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest

from autosplit.hardware.measurement.results import Spread
from autosplit.hardware.profiling.graph_file import read_graph
from studies.benchmarks import __main__ as all_benchmarks
from studies.benchmarks import (
    deployments,
    link,
    memory,
    onnxruntime_threads,
    pipeline,
    planner,
    predictions,
    result,
    runtimes,
    zoo_studies,
)
from studies.benchmarks import faults as faults_benchmark
from studies.simulation.bench import chain_of
from studies.tools import tables
from tests.studies.conftest import STUDIES
from tests.study import faults

Bench = Callable[..., int]
FAST, SAME, SLOW = Spread(2.0, 1.9, 2.1), Spread(2.1, 2.0, 2.2), Spread(4.0, 3.9, 4.1)
COMMANDS = ["studies.tools.tables", "studies.benchmarks.__main__"]
COMMANDS += [f"studies.benchmarks.{module}" for module, *_ in all_benchmarks.COMMANDS.values()]
GRAPH = {
    "maxFPGAs": 3,
    "maxCPUs": 0,
    "maxSizePerFPGA": 1e9,
    "nodes": [
        {
            "id": i,
            "supportedOnFpga": 1,
            "cpuLatency": 9,
            "fpgaLatency": 1 + i % 3,
            "isBackwardNode": 0,
            "size": 1,
        }
        for i in range(8)
    ],
    "edges": [{"sourceId": i, "destId": i + 1, "cost": 0.1} for i in range(7)],
}


@pytest.mark.parametrize("name", sorted(set(COMMANDS)))
def test_each_command_answers_help(
    name: str, bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit:
        bench(importlib.import_module(name), "--help")
    assert exit.value.code == 0
    assert f"python -m {name.removesuffix('.__main__')}" in capsys.readouterr().out


def test_every_module_with_a_main_function_is_run_by_the_command_for_all() -> None:
    files = (STUDIES / "benchmarks").glob("*.py")
    modules = {file.stem for file in files if "def main" in file.read_text()}
    run = {module for module, *_ in all_benchmarks.COMMANDS.values()}
    assert run == modules - {"__main__", "soak"}  # that one takes an export


def test_every_benchmark_has_its_table_on_the_page_of_results() -> None:
    page = tables.PAGES[0].read_text()
    assert all(f"<!-- results: {name} -->" in page for name in all_benchmarks.COMMANDS)


@pytest.mark.integration
def test_both_ways_to_a_candidate_are_timed_in_turns() -> None:
    fresh, linked = link.measure("transformer", 2)
    assert len(fresh) == len(linked) == 2
    assert min(*fresh, *linked) > 0


def test_the_planner_proves_what_it_finds(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "tiny.json").write_text(json.dumps(GRAPH))
    assert bench(planner, tmp_path / "w", "-o", tmp_path / "planner.json") == 0
    outcome = result.read(tmp_path / "planner.json")
    assert [row[:3] for row in outcome.rows] == [("tiny", "9", "2"), ("tiny", "9", "3")]
    assert outcome.command == "python -m studies.benchmarks.planner w"


def test_a_planner_that_leaves_a_gap_misses_its_bar() -> None:
    rows = [{"gap %": 0.0, "seconds": 1.0}, {"gap %": 0.5, "seconds": 2.5}]
    assert [bar.holds for bar in planner.bars(rows, [])] == [False, False]
    assert [bar.holds for bar in planner.bars(rows[:1], [{"gap %": 6.0}])] == [True, True, False]


def test_deployments_are_proven_and_no_worse_than_their_corners(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tiny.json").write_text(json.dumps(GRAPH))
    monkeypatch.setattr(deployments, "cells", lambda number: read_graph(tmp_path / "tiny.json"))
    monkeypatch.setattr(deployments, "chains", lambda number, length: deployments.cells(1))
    assert bench(deployments, tmp_path, "--cores", "3", "-o", tmp_path / "out.json") == 0
    outcome = result.read(tmp_path / "out.json")
    assert len(outcome.rows) == 16
    graph, cores, memory, _, replicas, best, bound, shape, _ = outcome.rows[0]
    assert (graph, cores, memory, shape) == ("tiny", "3", "1", "3")
    assert replicas == best == bound


def test_predictions_count_after_the_first_five_trials() -> None:
    def trial(number: int, predicted: float, value: float | None) -> Any:
        values = None if value is None else [value]
        record = {"autosplit": {"predicted_ms": predicted}}
        return SimpleNamespace(number=number, values=values, user_attrs=record)

    trials = [
        *(trial(n, 9.0, 1.0) for n in range(5)),
        trial(5, 1.1, 1.0),
        trial(6, 1.0, None),
        trial(7, 0.5, 1.0),
    ]
    assert predictions.prediction_errors(trials[::-1]) == pytest.approx([10.0, 50.0])


def test_what_a_split_is_worth_is_told_with_its_ties() -> None:
    assert predictions.against(FAST, SAME).endswith(": 1.05, tie")
    assert predictions.against(FAST, SLOW).endswith(": 2.00, gain")
    assert predictions.against(FAST, None) == ""


def test_memory_is_weighed_above_the_interpreter() -> None:
    outcome = {"before": 400, "tenth": 500, "end": 530, "needed": 100}
    assert memory.weighed(outcome) == (pytest.approx(1.3), pytest.approx(6.0))


def test_every_tensor_is_needed_once() -> None:
    graph, _ = chain_of(5, 0)
    assert (
        memory.needed(graph)
        == sum(op.weight_bytes for op in graph.ops) + 6 * next(iter(graph.tensors.values())).bytes
    )


def test_a_tie_is_no_gain() -> None:
    seven = ["gain"] * 7 + ["loss", "tie"]
    assert [bar.holds for bar in onnxruntime_threads.bars(seven, [1.06] * 9)] == [True, True]
    assert [bar.holds for bar in onnxruntime_threads.bars([*seven[1:], "tie"], [1.04] * 9)] == [
        False,
        False,
    ]


def test_the_share_of_the_limit_has_a_median_and_a_least() -> None:
    assert [bar.holds for bar in pipeline.bars([0.9, 0.95, 1.0], 60)] == [True, True, True]
    assert [bar.holds for bar in pipeline.bars([0.89, 0.94, 1.0], 61)] == [False, False, False]


def test_studies_may_end_with_splits_that_tie() -> None:
    endings = [
        predictions.ending(periods) for periods in ([FAST], [FAST, SAME], [FAST, SAME, SLOW])
    ]
    assert endings == ["the same split", "a tie", predictions.DIFFERENT]


def remains(**known: Any) -> faults.Remains:
    whole = {
        "states": ("COMPLETE",) * 40,
        "keys": tuple(map(str, range(40))),
        "numbers": tuple(range(40)),
        "errors": (),
        "best": (2.0, "1"),
    }
    return faults.Remains(**{**whole, **known})


@pytest.mark.parametrize(
    ("lost", "known", "missed"),
    [
        (0, {}, []),
        (1, {}, ["killed: finished trials lost or changed"]),
        (0, {"states": ("FAIL",) * 3}, ["killed: trials repeated"]),
        (0, {"states": ("RUNNING",)}, ["killed: left running"]),
        (0, {"best": (2.0, "2")}, ["killed: end against the study that ran through"]),
        (
            0,
            {"keys": ("0", *map(str, range(39)))},
            ["killed: splits measured twice", "killed: end against the study that ran through"],
        ),
    ],
)
def test_what_kills_must_not_do_is_noticed(lost: int, known: Any, missed: list[str]) -> None:
    outcome = faults.Killed(2, lost, remains(**known), remains())
    assert [bar.what for bar in faults_benchmark.killed_bars(outcome) if not bar.holds] == missed


@pytest.mark.parametrize(
    ("codes", "known", "missed"),
    [
        ((0, 0, 0), {}, []),
        ((0, 1, 0), {}, ["exit codes of the three that lived"]),
        ((0, 0, 0), {"numbers": (0, 0)}, ["numbers"]),
    ],
)
def test_what_workers_must_not_do_is_noticed(codes: Any, known: Any, missed: list[str]) -> None:
    sixty = {"keys": tuple(map(str, range(60))), "numbers": tuple(range(60)), **known}
    bars = faults_benchmark.shared_bars("x", faults.Shared(codes, "", "", remains(**sixty)))
    assert [bar.what.removeprefix("x: ") for bar in bars if not bar.holds] == missed


def test_memory_is_read() -> None:
    with mmap.mmap(-1, 50_000_000) as region:  # what malloc gives back, and when, is its own affair
        empty = memory.resident()
        for _ in range(47):
            region.write(bytes(1 << 20))
        full = memory.resident()
    assert full - empty > 40_000_000
    assert full - memory.resident() > 40_000_000


def test_a_hop_is_measured() -> None:
    assert pipeline.hop_us(items=20) >= 0


def test_a_benchmark_that_fails_is_reported_and_the_others_run(
    bench: Bench,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    commands = {
        "fails": ("planner", "--no-such-option"),
        "tables": ("planner", str(tmp_path / "w")),
    }
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "tiny.json").write_text(json.dumps(GRAPH))
    monkeypatch.setattr(all_benchmarks, "COMMANDS", commands)
    assert bench(all_benchmarks, "--folder", tmp_path) == 1
    assert "failed with exit code 2" in capsys.readouterr().out
    assert result.read(tmp_path / "tables.json").name == "planner"


def test_what_a_benchmark_needs_is_listed_and_what_cannot_run_is_left_out(
    bench: Bench,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "planner.json"
    result.finish("planner", ("net",), [], file=file)
    assert bench(all_benchmarks, "planner", "--list", "--folder", tmp_path) == 0
    assert "a calm machine, graph files, if there are any" in capsys.readouterr().out
    monkeypatch.setitem(all_benchmarks.PACKAGES, "search", ("no_such_package",))
    names = ("search", "planner", "--skip", "planner")
    assert bench(all_benchmarks, *names, "--folder", tmp_path) == 0
    out = capsys.readouterr().out
    assert "left out: no no_such_package" in out
    assert file.exists()


def test_results_of_other_versions_are_stale(bench: Bench, tmp_path: Path, capsys: Any) -> None:
    here = json.dumps(asdict(result.Result("planner", ("net",), ())))
    (tmp_path / "planner.json").write_text(here)
    (tmp_path / "faults.json").write_text(here.replace(optuna.__version__, "0.1"))
    names = ("planner", "faults", "memory")
    assert bench(all_benchmarks, *names, "--stale", "--list", "--folder", tmp_path) == 0
    out = capsys.readouterr().out
    assert [name in out for name in names] == [False, True, True]


@pytest.mark.slow
def test_studies_of_a_small_net_are_run_from_end_to_end(bench: Bench, tmp_path: Path) -> None:
    assert bench(
        predictions, "branches", "--seconds", 0.2, "--trials", 6, "-o", tmp_path / "study.json"
    ) in (0, 1)
    outcome = result.read(tmp_path / "study.json")
    assert outcome.rows[0][0] == "branches"
    assert outcome.rows[0][-1] in ("split", "replicate", "leave")


@pytest.mark.slow
def test_a_study_file_is_run_for_a_net(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "zoo.json"
    assert bench(zoo_studies, "branches_tvm", "--trials", 2, "-o", file) == 0
    measured = result.read(file)
    assert measured.command == "python -m studies.benchmarks.zoo_studies branches_tvm --trials 2"
    assert measured.rows[0][:3] == ("branches", "tvm", "2")
    assert {"machine", "apache-tvm"} <= measured.environment.keys()


@pytest.mark.integration
def test_a_split_competes_with_the_sessions_of_every_runtime(bench: Bench, tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    file = tmp_path / "runtimes.json"
    code = bench(runtimes, "branches", "--trials", 2, "--seconds", "0.2", "-o", file)
    measured = result.read(file)
    assert code == (0 if measured.holds else 1)
    (row,) = measured.rows
    assert row[0] == "branches"
    assert len(row[2].split(", ")) == 2
    assert row[4].partition(",")[0] in ("tvm", "onnxruntime", "openvino")


def test_a_split_may_lose_where_one_op_takes_as_long() -> None:
    sessions = {"tvm, 1 thread": FAST}
    slower = runtimes.Compared(("tvm", "tvm"), SLOW, sessions, {}, longest_ms=0.5)
    assert slower.is_slower
    assert not slower._replace(longest_ms=3.0).is_slower
    assert not slower._replace(split=SAME).is_slower
    assert slower._replace(single={"tvm": FAST}).loses_to_single
