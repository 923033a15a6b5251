import contextlib
import json
import signal
import subprocess
import sys
import urllib.request

import optuna
import pytest

from autosplit.cli import main
from autosplit.study.record import FORMAT


@pytest.fixture
def database(tmp_path):
    file = tmp_path / "tiny.db"
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(study_name="tiny", storage=f"sqlite:///{file}")
    study.set_user_attr("autosplit", {"format": FORMAT, "version": "0"})
    return file


@contextlib.contextmanager
def running(*arguments):
    command = [sys.executable, "-m", "autosplit", "dashboard", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.integration
def test_it_prints_the_url_serves_and_ends_with_130_when_interrupted(database):
    words = ["--port", "0", "-f", "json", "--allow-remote", "--host", "127.0.0.1"]
    with running(str(database), *words) as process:
        url = json.loads("".join(process.stdout.readline() for _ in range(3)))["url"]
        assert urllib.request.urlopen(url, timeout=60).status == 200
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=60)
    assert (process.returncode, rest) == (130, "")
    warning, interrupt = errors.splitlines()
    assert warning == "autosplit: everyone who can reach this address can read the study"
    assert interrupt == "autosplit: interrupted"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["missing.db"], "does not exist"),
        (["missing.toml"], "does not exist"),
        (["nobody", "--storage", "{database}"], "holds no study 'nobody'; it holds tiny"),
        (["{database}", "--host", "0.0.0.0"], "add --allow-remote"),
        (["{database}", "--allow-remote"], "needs --host ADDR"),
        (["{database}", "--port", "99999"], "give --port 1 to 65535"),
        (["bad://", "--storage", "x"], "://"),
    ],
)
def test_what_cannot_be_served_is_one_line_and_exit_2(database, capsys, arguments, says):
    assert main(["dashboard", *(a.format(database=database) for a in arguments)]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1
