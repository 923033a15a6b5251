"""`-f json` prints one document on standard output and nothing else, also after a failure."""

import json
import shutil
import subprocess
import sys

import pytest

from autosplit import cli
from autosplit.cli import main
from autosplit.hardware.profiling.graph_file import save_graph
from studies.simulation.command import Hardware, simulated
from tests.planner.graphs import chain

pytest.importorskip("onnxruntime")
STUDY = 'model = "net.onnx"\nstages = 2\n[search]\ntrials = 1\n'


@pytest.fixture(autouse=True, scope="module")
def _hardware():
    with simulated(Hardware(ops=6)):
        yield


@pytest.fixture(scope="module")
def finished(_hardware, tmp_path_factory):
    folder = tmp_path_factory.mktemp("documents")
    (folder / "net.toml").write_text(STUDY)
    save_graph(folder / "g.json", chain(1.0, 2.0, 3.0), 2)
    assert main(["run", str(folder / "net.toml"), "--storage", str(folder / "net.db")]) == 0
    return folder


@pytest.fixture
def folder(finished, tmp_path, monkeypatch):
    monkeypatch.delenv("AUTOSPLIT_STORAGE", raising=False)
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


WORDS = {
    "plan": ["g.json", "--stages", "2"],
    "show": ["net.db"],
    "report": ["net.db", "-o", "page.html"],
    "run": ["net.toml"],
    "zoo": ["list"],
    "doctor": [],
    "inspect": ["MODEL"],
    "profile": ["MODEL", "--seconds", "0.01"],
    "split": ["MODEL", "--after", "first"],
    "extract": ["MODEL", "--ops", "first"],
    "verify": ["EXPORT"],
    "bench": ["EXPORT", "--seconds", "0.01"],
}
KEYS = {
    "plan": {"stages", "loads", "period", "lower_bound", "optimal", "seconds"},
    "show": {"study", "trials", "best", "baselines", "bound_ms", "verdict"},
    "run": {"study", "trials", "best", "baselines", "bound_ms", "verdict"},
    "report": {"file"},
    "doctor": {"ok", "checks"},
    "inspect": {"model", "inputs", "outputs", "folded", "ops", "tensors", "cuts"},
    "profile": {"model", "device", "total_ms", "ops"},
    "split": {"model", "cuts", "stages", "file"},
    "extract": {"model", "ops", "file"},
    "verify": {"equal", "max_abs_error", "max_rel_error", "items"},
    "bench": {"period_ms", "latency_ms", "items", "warm_up", "stages"},
}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", WORDS)
def test_standard_output_is_one_document(command, branches, exported, capfd):
    places = {"MODEL": str(branches.path), "EXPORT": str(exported)}
    words = [places.get(word, word) for word in WORDS[command]]
    assert main([command, *words, "-f", "json"]) == 0
    printed = capfd.readouterr().out
    assert (
        KEYS.get(command, set()) <= set(json.loads(printed))
        if command in KEYS
        else json.loads(printed)
    )
    assert printed.endswith("\n")


@pytest.mark.integration
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", WORDS)
def test_a_table_is_no_json_and_says_something(command, branches, exported, capfd):
    places = {"MODEL": str(branches.path), "EXPORT": str(exported)}
    assert main([command, *(places.get(word, word) for word in WORDS[command])]) == 0
    printed = capfd.readouterr().out
    assert len(printed.split()) >= 2
    with pytest.raises(json.JSONDecodeError):
        json.loads(printed)


@pytest.mark.parametrize("command", [c for c in cli.COMMANDS if c not in ("zoo", "doctor")])
def test_a_failure_prints_no_document(command, tmp_path, monkeypatch, said):
    monkeypatch.chdir(tmp_path)
    more = {
        "split": ["--after", "x"], "plan": ["--stages", "2"], "report": ["-o", "p.html"],
        "export": ["-o", "out"],
        "tune": ["-o", "tuned"], "extract": ["--ops", "x"],
    }  # fmt: skip
    code, line = said(command, "nowhere.onnx", *more.get(command, []), "-f", "json")
    assert code in (2, 3)
    assert "nowhere" in line


def run(*arguments, **environment):
    import os

    return subprocess.run(
        [sys.executable, "-m", "autosplit", *arguments],
        capture_output=True,
        env={**os.environ, **environment},
        timeout=100,
        check=True,
    ).stdout


def test_what_is_no_terminal_gets_whole_cells_without_colours():
    shown = run("zoo", "list", COLUMNS="20", TERM="xterm-256color").decode()
    assert "\x1b" not in shown
    assert "squeezenet" in shown
    assert "1x3x224x224" in shown


def test_a_terminal_that_knows_ascii_only_is_no_error():
    assert b"squeezenet" in run("zoo", "list", PYTHONIOENCODING="ascii:replace")
