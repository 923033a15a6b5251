"""The dashboard over a study in PostgreSQL: shown as from a file, and never written to."""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy

from autosplit.cli import main
from autosplit.errors import MachineError
from autosplit.report.dashboard import app
from autosplit.report.documents.study_reader import StudyReader, find_study
from tests.study.server import Server, postgresql


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgresql() as running:
        yield running


@pytest.fixture(scope="module")
def source(server: Server, graphs: Any, make: Any) -> StudyReader:
    make(server.url, graphs.fire_net(), "fire")
    return find_study("fire", server.url)


@contextlib.contextmanager
def served(source: StudyReader, **options: Any) -> Iterator[str]:
    """The address of a server over the study, running in a thread."""
    http, url = app.open_server(source, port=0, **options)
    thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield url.partition("/dashboard")[0]
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


def ask(address: str, method: str = "GET") -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(
            urllib.request.Request(address, method=method), timeout=60
        ) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read()


def rows(url: str) -> dict[str, list[str]]:
    """Everything that the database holds."""
    engine = sqlalchemy.create_engine(url)
    with engine.connect() as connection:
        tables = sqlalchemy.inspect(engine).get_table_names()
        found = {
            t: sorted(map(repr, connection.execute(sqlalchemy.text(f'SELECT * FROM "{t}"'))))
            for t in tables
        }
    engine.dispose()
    return found


def test_trials_notes_pictures_and_plots_are_shown_and_nothing_is_written(
    source: StudyReader,
) -> None:
    before = rows(source.url)
    with served(source) as address:
        page = json.loads(ask(f"{address}/api/studies/1")[1])
        picture = page["trials"][3]["note"]["body"].split("](")[1].split(")")[0]
        assert ask(address + picture)[1].startswith(b"\x89PNG")
    assert (len(page["trials"]), len(page["plotly_graph_objects"])) == (12, 4)
    assert "stage 1 ended by signal 11" in page["trials"][5]["note"]["body"].replace("&#45;", "-")
    assert rows(source.url) == before


@pytest.mark.parametrize("method", ["DELETE", "POST", "PUT", "PATCH"])
def test_what_could_write_is_refused(source: StudyReader, method: str) -> None:
    with served(source) as address:
        assert ask(f"{address}/api/studies/1", method)[0] == 405


def test_the_database_itself_refuses_to_be_written_through_a_reader(source: StudyReader) -> None:
    with (
        pytest.raises(Exception, match=r"read-only|exception is raised during the commit"),
        source.open() as study,
    ):
        study.set_user_attr("mine", 1)
    with source.open() as study:
        assert "mine" not in study.user_attrs


def test_the_command_reads_a_study_there_by_its_name(
    source: StudyReader, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", "fire", "--storage", source.url, "-f", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["trials"]) == 12
    assert main(["dashboard", "water", "--storage", source.url, "--port", "0"]) == 2
    assert "holds no study 'water'; it holds fire" in capsys.readouterr().err


def test_a_server_that_stops_leaves_what_was_read(
    source: StudyReader,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(app, "REFRESH", 0.0)
    with served(source) as address:
        server.stop()
        try:
            assert len(json.loads(ask(f"{address}/api/studies/1")[1])["trials"]) == 12
            assert (
                "showing what was read before: storage 'postgresql+psycopg://"
                in capsys.readouterr().err
            )
            with pytest.raises(MachineError, match=r"cannot be read: .*; see to it"):
                app.open_server(source, port=0)
        finally:
            server.start()
