"""What a study looks for on this machine before its first trial."""

from pathlib import Path

import pytest

from autosplit.cli import main
from autosplit.hardware.bench import isolated
from autosplit.hardware.codegen import toolchain
from autosplit.study.config.study_file import StudyConfig
from autosplit.study.loop.benches import check_linker, open_bench


@pytest.fixture
def without_linker(monkeypatch):
    monkeypatch.setattr(toolchain, "_driver", lambda: None)


def notes_of(**keys):
    notes = []
    check_linker(StudyConfig.model_validate({"name": "s", "zoo": "branches", **keys}), notes.append)
    return notes


def test_what_nothing_can_link_is_refused_at_once(without_linker, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("s.toml").write_text('zoo = "branches"\nstages = 2\nexport = "out"\n')
    assert main(["run", "s.toml"]) == 3
    line = capsys.readouterr().err
    assert "install gcc or clang" in line
    assert "out'" in line
    assert [file.name for file in tmp_path.iterdir()] == ["s.toml"]


def test_a_study_without_an_export_goes_on_with_a_note(without_linker):
    (note,) = notes_of(stages=2)
    assert "install gcc or clang" in note


@pytest.mark.parametrize(
    "keys",
    [{"runtime": "onnxruntime"}, {"target": "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"}],
)
def test_what_needs_no_linker_of_this_machine_is_not_noted(without_linker, keys):
    assert notes_of(stages=2, export="out", **keys) == []


@pytest.mark.parametrize("options", [{}, {"trust_kernels": True}])
def test_kernels_are_trusted_by_who_runs_and_not_by_a_study_file(monkeypatch, options):
    settings = []
    monkeypatch.setattr(isolated, "IsolatedBench", lambda setting, _: settings.append(setting))
    config = StudyConfig.model_validate({"name": "s", "model": "net.json", "stages": 2})
    open_bench(config, **options)
    assert [setting.trust_kernels for setting in settings] == [bool(options)]
