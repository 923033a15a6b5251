import json
import webbrowser
from pathlib import Path
from unittest.mock import Mock, PropertyMock

import pytest

from autosplit.cli import main
from autosplit.errors import ModelError, StageError
from autosplit.report.dashboard import app
from studies.simulation.bench import SimulatedBench

pytestmark = pytest.mark.usefixtures("hardware")
STUDY = 'name = "net"\nzoo = "chain"\nstages = 3\n[search]\ntrials = 3\nsampler = "random"\n'


@pytest.fixture
def study(tmp_path):
    (tmp_path / "net.toml").write_text(STUDY)
    return "net.toml"


def failed(capsys, code, *args):
    assert main(list(args)) == code
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith("autosplit: ")
    return lines[-1]


def test_a_model_gets_a_study_file_and_the_same_command_resumes(capsys):
    Path("my net.onnx").touch()
    command = ["run", "my net.onnx", "--stages", "3", "--trials", "2", "-f", "json"]
    command += ["--runtime", "tvm", "--shape", "x=1x3", "--state", "h=h_next"]
    assert main(command) == 0
    shown, err = capsys.readouterr()
    assert "wrote my-net.toml with all that was assumed; the same command resumes" in err
    written = Path("my-net.toml").read_text()
    lines = 'model = "my net.onnx"', "stages = 3", "trials = 2", 'runtime = "tvm"'
    for line in (*lines, "[shapes]", '    { input = "h", output = "h_next" },'):
        assert line in written.splitlines()
    noted = written.replace('onnx"', 'onnx"  # the second one', 1)
    Path("my-net.toml").write_text(noted)
    assert main(command) == 0
    again, err = capsys.readouterr()
    assert "wrote" not in err
    assert json.loads(again)["trials"] == json.loads(shown)["trials"]
    assert "objective was 'throughput', is 'goodput'" in failed(capsys, 2, *command, "--p99", "20")
    Path("my-net.toml").write_text('model = "other.onnx"')
    assert "study file of another model" in failed(capsys, 2, "run", "my net.onnx")


@pytest.mark.parametrize("step", ["study_file.load", "check_linker", "open_bench", "description"])
def test_a_refused_model_leaves_no_study_file(tmp_path, monkeypatch, capsys, step):
    error, bench = ModelError("input 'x' has a dynamic shape"), Mock()
    type(bench).description = PropertyMock(side_effect=error)
    is_opened = step == "description"
    opened = Mock(return_value=bench) if is_opened else Mock(side_effect=error)
    name = "open_bench" if is_opened else step
    place = "config" if step == "study_file.load" else "loop.benches"
    monkeypatch.setattr(f"autosplit.study.{place}.{name}", opened)
    Path("net.onnx").touch()
    assert "dynamic shape" in failed(capsys, 2, "run", "net.onnx", "--cores", "2")
    assert [file.name for file in tmp_path.iterdir()] == ["net.onnx"]
    assert bench.close.called == is_opened


def test_cores_replace_the_stages_of_a_study_file_and_the_reverse(study, capsys, as_json):
    document = as_json("run", study, "--cores", "2")
    assert document["study"]["stages"] == "auto"
    assert "measures something else" in failed(capsys, 2, "run", study, "--stages", "2")
    Path(study).write_text(STUDY.replace("stages = 3", "cores = 2"))
    document = as_json("run", study, "--stages", "2", "--name", "other")
    assert document["study"]["stages"] == 2


@pytest.mark.parametrize("trust", ["", "--trust-kernels "])
def test_the_verdict_comes_first_and_progress_is_on_stderr(study, capsys, trust):
    assert main(["run", study, *trust.split()]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("Replicate the whole model: 3 x simulated, 1 thread each.\n")
    numbered = [line.split(":")[0] for line in err.splitlines() if line.startswith("trial")]
    assert numbered == ["trial 0", "trial 1", "trial 2"]
    assert "of 3 trials, best" in err
    assert err.splitlines()[-4:] == [
        "next:",
        "  autosplit report net.toml -o net.html",
        "  autosplit dashboard net.toml",
        f"  autosplit export net.toml {trust}-o net-split",
    ]


def test_the_dashboard_is_opened_and_the_run_ends_with_it(study, capsys, monkeypatch):
    server, browser = Mock(), Mock()

    def open_it(reader, **options):
        with reader.open() as opened:
            return server, f"http://127.0.0.1/{opened.study_name}"

    monkeypatch.setattr(app, "open_server", open_it)
    monkeypatch.setattr(webbrowser, "open", browser)
    assert main(["run", study, "--open"]) == 0
    browser.assert_called_once_with("http://127.0.0.1/net")
    server.run.assert_called_once()
    assert "the dashboard stays until Ctrl-C" in capsys.readouterr().err


def test_options_lie_over_the_study_file(study, as_json):
    words = "--stages 2 --devices cores:0 cores:1 --trials 2 --storage elsewhere.db"
    document = as_json("run", study, *words.split())
    assert len(document["trials"]) == 2
    assert document["study"]["devices"] == ["cores:0", "cores:1"]
    assert Path("elsewhere.db").is_file()
    assert not Path("net.db").exists()


@pytest.mark.parametrize(
    ("code", "args", "text"),
    [
        (2, ["nowhere.toml"], "does not exist"),
        (2, ["net.toml", "--trials", "0"], "search.trials must be"),
        (1, ["net.toml", "--stages", "30"], "30 stages are too many: only 6 groups"),
        (2, ["net.toml", "--storage", "no such thing://x"], "is not a database URL"),
        (3, ["net.toml", "--storage", "no/folder/x.db"], "unable to open database file; repair"),
        (3, ["net.toml", "--storage", "net.toml"], "failed: file is not a database;"),
        (3, ["net.toml", "--storage", "postgresql+psycopg://u:secret@127.0.0.1:1/x"], ""),
        (2, ["net.toml", "--storage", "postgresql+psycopg://u:p@a:secret@h/x"], "is not a"),
    ],
)
def test_an_error_is_one_line_and_a_code(study, capsys, code, args, text):
    line = failed(capsys, code, "run", *args)
    assert text in line
    assert "secret" not in line


def test_a_hidden_password_in_the_next_commands_is_mentioned(study, capsys, monkeypatch):
    shown = "postgresql://me:***@host/db"
    monkeypatch.setattr("autosplit.study.storage.redact_password", lambda url: shown)
    assert main(["run", study, "--storage", "net.db"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert f"  autosplit dashboard net --storage '{shown}'" in lines
    assert lines[-1] == "write the password in place of ***"


def test_every_measured_split_failing_is_no_success(study, capsys, monkeypatch):
    broken = Mock(side_effect=StageError("stage 1 said no"))
    monkeypatch.setattr(SimulatedBench, "measure", broken)
    assert "no trial succeeded, most often: stage 1 said no" in failed(capsys, 1, "run", study)
    assert "3 of" not in failed(capsys, 1, "run", study)
    assert "no trial succeeded" in failed(capsys, 1, "run", study, "--trials", "9")
    assert broken.call_count == 5  # of which most have failed


def test_an_export_that_fails_costs_neither_the_study_nor_its_verdict(study, capsys):
    Path("split.json").write_text("{}")
    assert "was not written by an export" in failed(capsys, 2, "run", study, "-o", ".")
    assert not Path("net.db").exists()
    assert main(["run", study, "-o", "other"]) == 2  # simulated hardware has nothing to export
    assert capsys.readouterr().out.startswith("Replicate the whole model")
