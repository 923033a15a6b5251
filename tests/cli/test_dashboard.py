from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest

from autosplit.cli import main
from autosplit.report.dashboard import app
from autosplit.report.documents import study_reader
from autosplit.study.record import FORMAT


@pytest.fixture
def database(tmp_path: Path) -> Path:
    file = tmp_path / "tiny.db"
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(study_name="tiny", storage=f"sqlite:///{file}")
    study.set_user_attr("autosplit", {"format": FORMAT, "version": "0"})
    return file


@contextlib.contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "autosplit", "dashboard", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.integration
def test_it_prints_the_url_serves_and_ends_with_130_when_interrupted(database: Path) -> None:
    with running(str(database), "--port", "0") as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert urllib.request.urlopen(url, timeout=60).status == 200
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=60)
    assert (process.returncode, rest, errors) == (130, "", "autosplit: interrupted\n")


def test_json_is_one_document(database: Path) -> None:
    with running(str(database), "--port", "0", "-f", "json") as process:
        assert process.stdout is not None
        document = json.loads("".join(process.stdout.readline() for _ in range(3)))
    assert document["url"].startswith("http://127.0.0.1:")


def test_a_port_in_use_is_an_environment_error(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["dashboard", str(database), "--port", str(port)]) == 3
    assert capsys.readouterr().err == (
        f"autosplit: port {port} on 127.0.0.1 is in use; "
        "give another with --port, or --port 0 for a free one\n"
    )


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
def test_what_cannot_be_served_is_one_line_and_exit_2(
    database: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    assert main(["dashboard", *(a.format(database=database) for a in arguments)]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_whoever_lets_other_machines_in_is_told_what_they_can_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def open_server(reader: object, host: str, port: int, **options: bool) -> object:
        asked.append((host, port, options))
        return contextlib.nullcontext(None), "http://here"

    monkeypatch.setattr(app, "open_server", open_server)
    monkeypatch.setattr(study_reader, "find_study", lambda study, storage: None)
    monkeypatch.setattr(contextlib.nullcontext, "serve_forever", lambda server: None, raising=False)
    assert main(["dashboard", "s.db", "--allow-remote", "--host", "0.0.0.0", "--port", "1"]) == 0
    out, err = capsys.readouterr()
    assert (out, "can read the study" in err) == ("http://here\n", True)
    assert asked == [("0.0.0.0", 1, {"allow_remote": True})]
