"""What the comparison with onnxruntime and the run of all benchmarks make of what they found."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bench_all
import bench_onnxruntime
import make_tables
import one_study
import outcome
import pytest
import run_studies

from autosplit.errors import ConfigError
from autosplit.study.config.study_file import StudyConfig
from autosplit.zoo import catalog


@pytest.mark.parametrize(("gained", "holds"), [(6, False), (7, True), (9, True)])
def test_seven_of_nine_nets_must_gain(gained: int, holds: bool) -> None:
    share, _ = bench_onnxruntime.bars(["gain"] * gained + ["tie"] * (9 - gained), [1.1] * 9)
    assert (share.value, share.holds) == (f"{gained} of 9, {9 - gained} ties", holds)


@pytest.mark.parametrize(
    ("gains", "holds"), [([1.05, 1.05], True), ([2.0, 0.56], True), ([2.0, 0.55], False)]
)
def test_the_mean_gain_is_a_geometric_one(gains: list[float], holds: bool) -> None:
    assert bench_onnxruntime.bars(["gain", "gain"], gains)[1].holds is holds


def test_a_benchmark_s_row_tells_bars_and_minutes() -> None:
    bars = (outcome.at_most("error", 6.0, 5.0), outcome.at_least("share", 1.0, 0.5))
    found = outcome.Outcome("x", (), (), bars=bars)
    assert bench_all.Ran("x", 1, 90.0, found).cells == ("x", "1.5", "1 of 2", "error: 6, at most 5")
    assert bench_all.Ran("x", 0, 30.0, outcome.Outcome("x", (), (), bars=bars[1:])).cells == (
        "x",
        "0.5",
        "1 of 1",
        "",
    )
    assert bench_all.Ran("x", -9, 0.0, None).cells == (
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
        bench_all.subprocess,
        "run",
        lambda words, check: ran.append(words[1:]) or SimpleNamespace(returncode=3),
    )
    (tmp_path / "planner.json").write_text("stale")
    (without,) = bench_all.run(["planner"], None, tmp_path)
    (given,) = bench_all.run(["planner"], Path("w"), tmp_path)
    script = str(bench_all.HERE / "bench_planner.py")
    assert ran == [
        [script, "--wide", "-o", str(tmp_path / "planner.json")],
        [script, "w", "--wide", "-o", str(tmp_path / "planner.json")],
    ]
    assert (without.code, without.found, given.code) == (3, None, 3)


def test_a_damaged_result_is_none_and_said_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.json").write_text("{")
    assert bench_all.kept(tmp_path / "x.json") is None
    assert "is no result of a benchmark" in capsys.readouterr().err
    assert bench_all.kept(tmp_path / "absent.json") is None


@pytest.mark.parametrize("module", [bench_all, run_studies])
def test_an_unknown_name_is_a_wrong_call(
    module: Any, bench: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        bench(module, "nonsense", "squeezenet_or_so")
    assert "nonsense, squeezenet_or_so: no such" in capsys.readouterr().err


def test_a_study_that_fails_is_told_and_the_others_are_run(
    tmp_path: Path, bench: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def study(config: StudyConfig) -> dict[str, Any]:
        if config.zoo == "resnet50":
            raise ConfigError("no such net")
        return {"verdict": {"text": "split it"}, "trials": config.search.trials}

    monkeypatch.setattr(run_studies, "study", study)
    assert bench(run_studies, "resnet50", "squeezenet", "--trials", 3, "--folder", tmp_path) == 1
    printed = capsys.readouterr()
    assert "resnet50: no such net" in printed.err
    assert printed.out == "squeezenet: split it\n"
    assert [f.name for f in tmp_path.iterdir()] == ["squeezenet.json"]
    assert '"trials": 3' in (tmp_path / "squeezenet.json").read_text()


def test_the_nets_that_are_compared_are_those_of_the_onnx_package() -> None:
    assert set(one_study.ONNX_NETS) == set(catalog.NAMES) - {"branches", "transformer"}


def test_a_study_of_a_net_has_two_stages_and_the_time_given() -> None:
    config = one_study.config_of("squeezenet", "onnxruntime", 0.5, trials=7)
    assert (config.zoo, config.backend, config.stages, config.measure.seconds) == (
        "squeezenet",
        "onnxruntime",
        2,
        0.5,
    )
    assert config.search.trials == 7


def test_the_split_of_a_trial_is_in_whole_numbers() -> None:
    trial = SimpleNamespace(user_attrs={"stages": [[0, 1.0], ["2"]]})
    assert one_study.stages_of(trial) == ((0, 1), (2,))


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
    assert make_tables.escaped(cell) == shown


def test_a_study_s_row_has_the_ways_in_one_order_and_gaps_where_one_is_missing() -> None:
    spread = {"median": 2.0, "low": 2.0, "high": 2.0}
    found = {
        "best": None,
        "baselines": [{"name": "replicas", "period_ms": spread}],
        "verdict": None,
        "trials": [],
    }
    row = make_tables.study_row("net_onnxruntime", found)
    assert row == ("net", "onnxruntime", "0", "", "", "", "2.00 (2.00 to 2.00)", "")
    assert len(row) == len(make_tables.STUDY_COLUMNS)
    assert make_tables.study_row("net", found)[:2] == ("net", "TVM")


def test_a_part_of_a_result_is_what_was_asked_for() -> None:
    bar = outcome.at_most("error", 1.0, 5.0)
    found = outcome.Outcome(
        "x", ("net",), (("a",),), ("a note",), (bar,), "python x", "2030-01-31", {}
    )
    whole, table, bars = (make_tables.benchmark(found, part) for part in (None, "table", "bars"))
    assert ["| a |" in whole, "- a note" in whole, "| error |" in whole] == [True] * 3
    assert ["| a |" in table, "- a note" in table, "| error |" in table] == [True, True, False]
    assert ["| a |" in bars, "- a note" in bars, "| error |" in bars] == [False, False, True]
    assert all(text.endswith("`python x, 2030-01-31, `") for text in (whole, table, bars))
