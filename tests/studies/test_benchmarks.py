import importlib
import json
import re
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
from studies.benchmarks import faults as faults_benchmark
from studies.benchmarks import pipeline, planner, result, winners
from studies.tools import tables
from tests.studies.conftest import STUDIES
from tests.study import faults

Bench = Callable[..., int]
FAST, SAME, SLOW = Spread(2.0, 1.9, 2.1), Spread(2.1, 2.0, 2.2), Spread(4.0, 3.9, 4.1)
COMMANDS = ["studies.tools.tables", "studies.benchmarks.__main__"]
COMMANDS += [f"studies.benchmarks.{module}" for module, *_ in all_benchmarks.COMMANDS.values()]
SUPPORTED = {"supportedOnFpga": 1, "isBackwardNode": 0}
GRAPH = {
    "maxFPGAs": 3,
    "maxCPUs": 0,
    "maxSizePerFPGA": 1e9,
    "nodes": [
        {"id": i, "fpgaLatency": 1 + i % 3, "cpuLatency": 9, "size": 1, **SUPPORTED}
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
    assert run == modules - {"__main__"}


def test_every_benchmark_has_its_table_on_a_page_and_no_other_has() -> None:
    pages = "".join(page.read_text() for page in tables.PAGES)
    marked = set(re.findall(r"<!-- results: (\w+) -->", pages)) - {"summary"}
    assert marked == set(all_benchmarks.COMMANDS)
    assert {file.stem for file in tables.RESULTS.glob("*.json")} <= marked


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
    monkeypatch.setattr(planner, "cells", lambda number: read_graph(tmp_path / "tiny.json"))
    monkeypatch.setattr(planner, "chains", lambda number, length: planner.cells(1))
    arguments = ("--deployments", "--cores", "3", "-o", tmp_path / "out.json")
    assert bench(planner, tmp_path, *arguments) == 0
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
    assert winners.prediction_errors(trials[::-1]) == pytest.approx((10.0, 50.0))


def test_the_share_of_the_limit_has_a_median_and_a_least() -> None:
    assert [bar.holds for bar in pipeline.bars([0.9, 0.95, 1.0], 60)] == [True, True, True]
    assert [bar.holds for bar in pipeline.bars([0.89, 0.94, 1.0], 61)] == [False, False, False]


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
    names = ("planner", "faults", "kernels")
    assert bench(all_benchmarks, *names, "--stale", "--list", "--folder", tmp_path) == 0
    out = capsys.readouterr().out
    assert [name in out for name in names] == [False, True, True]


def test_winners_gain_tie_or_are_the_same() -> None:
    def won(period: Spread, rival: Spread, unsplit: str | None = None) -> winners.Winner:
        return winners.Winner("", unsplit, period, period, "tvm, 1 thread", rival, (9.0,), ())

    compared = [won(FAST, SLOW), won(FAST, SAME), won(SLOW, FAST), won(FAST, SLOW, "tvm, 1 thread")]
    assert [w.outcome for w in compared] == ["gain", "tie", "loss", "same"]
    bars = {bar.what: bar for bar in winners.bars_of(compared, "auto")}
    assert [bar.value for bar in bars.values()] == ["1", "0", "9", "1"]
    assert not any(bar.holds for what, bar in bars.items() if "difference" not in what)


@pytest.mark.slow
def test_the_winner_of_a_small_net_is_compared_with_the_unsplit_model(
    bench: Bench, tmp_path: Path
) -> None:
    file = tmp_path / "winners.json"
    arguments = ("branches", "--stages", 2, "--runtime", "tvm", "--trials", 2, "--seconds", 0.2)
    assert bench(winners, *arguments, "-o", file) in (0, 1)
    (row,) = result.read(file).rows
    assert row[0] == "branches"
    assert row[7] in ("gain", "tie", "loss", "same")
