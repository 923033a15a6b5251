"""What the comparison with onnxruntime and the run of all benchmarks make of what they found."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autosplit.errors import ConfigError
from autosplit.study.config.study_file import StudyConfig
from autosplit.zoo import catalog
from studies.benchmarks import __main__ as all_benchmarks
from studies.benchmarks import finished_study, onnxruntime_threads, result, zoo_studies
from studies.tools import tables


@pytest.mark.parametrize(("gained", "holds"), [(6, False), (7, True), (9, True)])
def test_seven_of_nine_nets_must_gain(gained: int, holds: bool) -> None:
    share, _ = onnxruntime_threads.bars(["gain"] * gained + ["tie"] * (9 - gained), [1.1] * 9)
    assert (share.value, share.holds) == (f"{gained} of 9, {9 - gained} ties", holds)


@pytest.mark.parametrize(
    ("gains", "holds"), [([1.05, 1.05], True), ([2.0, 0.56], True), ([2.0, 0.55], False)]
)
def test_the_mean_gain_is_a_geometric_one(gains: list[float], holds: bool) -> None:
    assert onnxruntime_threads.bars(["gain", "gain"], gains)[1].holds is holds


def test_a_benchmark_s_row_tells_bars_and_minutes() -> None:
    bars = (result.at_most("error", 6.0, 5.0), result.at_least("share", 1.0, 0.5))
    outcome = result.Result("x", (), (), bars=bars)
    assert all_benchmarks.Ran("x", 1, 90.0, outcome).cells == (
        "x",
        "1.5",
        "1 of 2",
        "error: 6, at most 5",
    )
    assert all_benchmarks.Ran("x", 0, 30.0, result.Result("x", (), (), bars=bars[1:])).cells == (
        "x",
        "0.5",
        "1 of 1",
        "",
    )
    assert all_benchmarks.Ran("x", -9, 0.0, None).cells == (
        "x",
        "0.0",
        "none",
        "failed with exit code -9",
    )


def test_a_benchmark_without_workloads_is_run_on_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(
        all_benchmarks.subprocess,
        "run",
        lambda words, check, cwd: ran.append(words[1:]) or SimpleNamespace(returncode=3),
    )
    (tmp_path / "planner.json").write_text("stale")
    (without,) = all_benchmarks.run(["planner"], None, tmp_path)
    (with_folder,) = all_benchmarks.run(["planner"], Path("w"), tmp_path)
    module = ["-m", "studies.benchmarks.planner"]
    file = ["-o", str(tmp_path / "planner.json")]
    assert ran == [[*module, "--wide", *file], [*module, str(Path("w").resolve()), "--wide", *file]]
    assert (without.code, without.result, with_folder.code) == (3, None, 3)


def test_a_damaged_result_is_none_and_said_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.json").write_text("{")
    assert all_benchmarks.written(tmp_path / "x.json") is None
    assert "is no result of a benchmark" in capsys.readouterr().err
    assert all_benchmarks.written(tmp_path / "absent.json") is None


@pytest.mark.parametrize("module", [all_benchmarks, zoo_studies])
def test_an_unknown_name_is_a_wrong_call(
    module: Any, bench: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        bench(module, "nonsense", "squeezenet_or_so")
    assert "nonsense, squeezenet_or_so: no such" in capsys.readouterr().err


def test_a_study_that_fails_is_reported_and_the_others_are_run(
    tmp_path: Path, bench: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(config: StudyConfig) -> dict[str, Any]:
        if config.zoo == "resnet50":
            raise ConfigError("no such net")
        trials = [{}] * (config.search.trials or 0)
        verdict = {"text": "split it", "choice": "split"}
        return {"verdict": verdict, "trials": trials, "best": None, "baselines": []}

    monkeypatch.setattr(zoo_studies, "run", run)
    names = ("resnet50_tvm", "squeezenet_tvm")
    assert bench(zoo_studies, *names, "--trials", 3, "-o", tmp_path / "x.json") == 1
    assert "resnet50_tvm: no such net" in capsys.readouterr().err
    (row,) = result.read(tmp_path / "x.json").rows
    assert row == ("squeezenet", "tvm", "3", "", "", "", "", "split")


def test_the_nets_that_are_compared_are_those_of_the_onnx_package() -> None:
    assert set(finished_study.ONNX_NETS) == set(catalog.NAMES) - {"branches", "transformer"}


def test_a_study_of_a_net_has_two_stages_and_the_time_given() -> None:
    config = finished_study.config_of("squeezenet", "onnxruntime", 0.5, trials=7)
    assert (config.zoo, config.runtime, config.stages, config.measure.seconds) == (
        "squeezenet",
        "onnxruntime",
        2,
        0.5,
    )
    assert config.search.trials == 7


def test_the_split_of_a_trial_is_in_whole_numbers() -> None:
    trial = SimpleNamespace(user_attrs={"autosplit": {"stages": [[0, 1], [2]]}})
    assert finished_study.stages_of(trial) == ((0, 1), (2,))


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("a|b", "a\\|b"),
        ("*x*", "\\*x\\*"),
        ("<b>", "\\<b>"),
        ("`x`", "\\`x\\`"),
        ("[a](b)", "\\[a\\](b)"),
        ("a\n b", "a b"),
    ],
)
def test_a_cell_is_shown_as_it_is(cell: str, shown: str) -> None:
    assert tables.escaped(cell) == shown


def test_the_row_of_a_study_has_gaps_where_a_baseline_is_missing() -> None:
    spread = {"median": 2.0, "low": 2.0, "high": 2.0}
    baselines = [{"name": "onnxruntime, 2 replicas", "period_ms": spread}]
    study = {"best": None, "baselines": baselines, "verdict": None, "trials": []}
    row = zoo_studies.row("net_onnxruntime", study)
    assert row == ("net", "onnxruntime", "0", "", "", "", "2.00 (2.00 to 2.00)", "")
    assert len(row) == len(zoo_studies.COLUMNS)


def test_the_final_comparison_gives_the_period_of_a_study() -> None:
    first = {"median": 3.0, "low": 2.9, "high": 3.1}
    final = {"median": 2.0, "low": 1.9, "high": 2.1}
    best = {"period_ms": first, "duel_ms": final}
    study = {"best": best, "baselines": [], "verdict": None, "trials": [{}, {}]}
    assert zoo_studies.row("net_tvm", study)[:4] == ("net", "tvm", "2", "2.00 (1.90 to 2.10)")


def test_a_part_of_a_result_is_what_was_asked_for() -> None:
    bar = result.at_most("error", 1.0, 5.0)
    outcome = result.Result(
        "x", ("net",), (("a",),), ("a note",), (bar,), "python x", "2030-01-31", {}
    )
    whole, table, bars = (tables.benchmark(outcome, part) for part in (None, "table", "bars"))
    assert ["| a |" in whole, "- a note" in whole, "| error |" in whole] == [True] * 3
    assert ["| a |" in table, "- a note" in table, "| error |" in table] == [True, True, False]
    assert ["| a |" in bars, "- a note" in bars, "| error |" in bars] == [False, False, True]
    assert all(text.endswith("`python x, 2030-01-31, `") for text in (whole, table, bars))
