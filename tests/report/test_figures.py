"""Every figure of a finished study is the same wherever it can be read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest

from autosplit.cli import main
from autosplit.deploy.manifest import results_parts
from autosplit.report.dashboard.snapshot import copy
from autosplit.report.documents.record import read
from autosplit.report.html import page
from autosplit.report.html.notes import escape, study_note, trial_note
from autosplit.report.html.tables import spread_text
from autosplit.study import export
from autosplit.study.documents import document_of
from autosplit.study.record import record_of, spread_of
from autosplit.units import digits, milliseconds
from studies.simulation.bench import SimulatedBench
from studies.simulation.command import Hardware, simulated

STUDY = """
model = "net.onnx"
stages = 3
[search]
trials = 9
sampler = "random"
"""


@pytest.fixture(scope="module", params=[0, 1])
def hardware(request: pytest.FixtureRequest) -> Iterator[Hardware]:
    hardware = Hardware(ops=20, noise=0.3, seed=request.param)
    with simulated(hardware):
        yield hardware


@pytest.fixture(scope="module")
def study(hardware: Hardware, tmp_path_factory: pytest.TempPathFactory) -> optuna.Study:
    """A study in which luck decides: the noise of the comparison is a quarter of the search's."""
    folder = tmp_path_factory.mktemp("figures")
    (folder / "f.toml").write_text(STUDY, encoding="utf-8")
    storage = folder / "f.db"
    assert main(["run", str(folder / "f.toml"), "--storage", str(storage), "-f", "json"]) == 0
    return optuna.load_study(study_name="f", storage=f"sqlite:///{storage}")


@pytest.fixture
def shown(study: optuna.Study, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What ``show -f json`` prints."""
    assert main(["show", study._storage._backend.url.removeprefix("sqlite:///"), "-f", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_optuna_has_the_values_of_the_search_and_show_the_final_ones(
    study: optuna.Study, shown: dict[str, Any]
) -> None:
    best = shown["best"]
    assert best == {**best, **shown["trials"][best["number"]]}
    assert best["duel_ms"] == best["period_ms"]
    for trial in study.trials:
        period = record_of(trial).period_ms
        assert period is not None
        assert trial.value == period.median


def test_the_best_was_in_the_final_comparison_and_its_stages_make_its_period(
    study: optuna.Study, shown: dict[str, Any]
) -> None:
    entries = {entry["number"]: entry for entry in study.user_attrs["final_comparison"]["entries"]}
    best = shown["best"]
    assert {key: best[key] for key in ("period_ms", "latency_ms", "stage_ms")} == {
        key: entries[best["number"]][key] for key in ("period_ms", "latency_ms", "stage_ms")
    }
    assert max(best["stage_ms"]) == pytest.approx(best["period_ms"]["median"])
    assert best["period_ms"]["median"] == min(e["period_ms"]["median"] for e in entries.values())


def test_the_dashboard_and_its_notes_have_the_figures_of_show(
    study: optuna.Study, shown: dict[str, Any]
) -> None:
    shown_copy, record = copy(study), read(study)
    best = shown["best"]
    periods = [trial["period_ms"]["median"] for trial in shown["trials"]]
    assert [trial.value for trial in shown_copy.trials] == periods
    period = spread_text(spread_of(best["period_ms"]))
    assert period in study_note(record)
    assert escape(" ".join(shown["verdict"]["text"].split()), 2000) in study_note(record)
    note = trial_note(record, record.trials[best["number"]])
    assert "the best of the study" in note
    for text in (period, *map(milliseconds, best["stage_ms"])):
        assert text in note


def test_the_page_has_the_figures_of_show(study: optuna.Study, shown: dict[str, Any]) -> None:
    text, best = page.page(read(study)), shown["best"]
    assert f"The best split: trial {best['number']}" in text
    for key in ("period_ms", "latency_ms"):
        assert spread_text(spread_of(best[key])) in text
    for baseline in shown["baselines"]:
        assert spread_text(spread_of(baseline["period_ms"])) in text
    assert ", ".join(map(digits, best["stage_ms"])) in text


def test_the_text_of_show_has_the_figures_of_its_document(
    study: optuna.Study, shown: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["show", study._storage._backend.url.removeprefix("sqlite:///")])
    text, best = capsys.readouterr().out, shown["best"]
    median = digits(best["period_ms"]["median"])
    assert f"best split: trial {best['number']}, {median} (" in text
    assert ", ".join(map(digits, best["stage_ms"])) in text
    assert shown["verdict"]["text"] in text


def test_split_json_has_the_figures_of_show(
    study: optuna.Study, shown: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    exported: list[Any] = []

    def keep(bench: SimulatedBench, deployment: Any, folder: Path, results: Any, *_: Any) -> None:
        exported.append(results)

    monkeypatch.setattr(SimulatedBench, "export", keep)
    export.export_stored_split(study, tmp_path)
    (results,), best = exported, shown["best"]  # that of a study of so many stages
    parts = results_parts(results)
    for key in ("period_ms", "latency_ms"):
        assert document_of(parts["measured"][key]) == best[key]
    assert list(parts["measured"]["stage_ms"]) == best["stage_ms"]
    assert parts["verdict"] == shown["verdict"]["text"]
    assert list(map(document_of, parts["baselines"])) == shown["baselines"]
