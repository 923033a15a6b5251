from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest

from autosplit.errors import AutosplitError, ConfigError, MachineError
from autosplit.report.dashboard import app
from autosplit.report.dashboard.artifacts import Drawn, identity
from autosplit.report.dashboard.guard import bind, is_loopback
from autosplit.report.documents.study_reader import StudyReader, find_study

Ask = Callable[..., tuple[int, dict[str, str], bytes]]


@contextlib.contextmanager
def served(database: Path, **options: Any) -> Iterator[Ask]:
    """A server over the study in a thread, and a way to ask it."""
    server, _ = app.open_server(find_study(str(database)), port=0, **options)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()

    def ask(
        path: str, method: str = "GET", body: str | None = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
        sent = {
            name.replace("_", "-"): value.replace("PORT", str(server.server_port))
            for name, value in headers.items()
        }
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()

    try:
        yield ask
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def study_page(ask: Ask) -> dict[str, Any]:
    status, _, body = ask("/api/studies/1")
    assert status == 200
    return json.loads(body)


def test_trials_have_notes_pictures_and_plots_and_the_study_file_stays_as_it_was(
    database: Path,
) -> None:
    before = digest(database)
    with served(database) as ask:
        page = study_page(ask)
        assert ask(page["trials"][3]["note"]["body"].split("](")[1].split(")")[0])[2].startswith(
            b"\x89PNG"
        )
    assert len(page["trials"]) == 12
    assert all("| stage |" in t["note"]["body"] for t in page["trials"])
    assert {a["filename"] for a in page["trials"][0]["artifacts"]} == {
        "stage-balance.png",
        "split-graph.png",
    }
    assert {p["id"] for p in page["plotly_graph_objects"]} == {
        "stage-times", "throughput-latency", "convergence", "predicted-measured",
    }  # fmt: skip
    assert {"key": "imbalance", "sortable": True} in page["union_user_attrs"]
    assert "Verdict" in page["note"]["body"]
    assert digest(database) == before
    assert os.listdir(database.parent) == [database.name]


@pytest.mark.parametrize(
    "method", ["DELETE", "POST", "PUT", "PATCH", "OPTIONS", "TRACE", "MIGRATE"]
)
def test_read_only_refuses_every_method_that_could_write(database: Path, method: str) -> None:
    with served(database) as ask:
        status, headers, _ = ask("/api/studies/1", method, "{}", Content_Type="application/json")
        assert (status, headers["allow"]) == (405, "GET, HEAD")
        assert len(study_page(ask)["trials"]) == 12


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:PORT", "127.0.0.1.evil.example", "10.0.0.1", "", "[::2]"]
)
def test_a_foreign_host_is_refused(database: Path, host: str) -> None:
    with served(database) as ask:
        assert ask("/api/studies", Host=host)[0] == 403


@pytest.mark.parametrize("host", ["localhost:PORT", "LOCALHOST", "127.0.0.1:PORT", "[::1]:PORT"])
def test_this_machine_is_answered(database: Path, host: str) -> None:
    with served(database) as ask:
        assert ask("/api/studies", Host=host)[0] == 200
        assert ask("/", "HEAD", Host=host)[0] == 302


def test_pages_and_artifacts_carry_headers_that_keep_others_out(database: Path) -> None:
    with served(database) as ask:
        page = ask("/dashboard/studies/1")[1]
        path = f"/artifacts/1/1/{study_page(ask)['trials'][0]['artifacts'][0]['artifact_id']}"
        artifact = ask(path)[1]
    assert page["content-security-policy"].startswith(
        "default-src 'self'; script-src 'self' 'unsafe-eval';"
    )
    assert artifact["content-security-policy"].startswith("sandbox; default-src 'none'")
    for headers in (page, artifact):
        assert "access-control-allow-origin" not in headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"


def test_an_unknown_page_or_picture_is_not_found(database: Path) -> None:
    with served(database) as ask:
        assert ask("/artifacts/1/1/" + identity("nothing"))[0] == 404
        assert ask("/api/studies/77")[0] == 404
        assert ask("/static/../../../../etc/passwd")[0] in (403, 404)


def test_a_running_study_can_be_watched(
    database: Path, monkeypatch: pytest.MonkeyPatch, graphs: Any, add: Any
) -> None:
    monkeypatch.setattr(app, "REFRESH", 0.0)
    with served(database) as ask:
        first = study_page(ask)["trials"][0]["artifacts"]
        add(
            optuna.load_study(study_name="fire", storage=f"sqlite:///{database}"),
            graphs.fire_net(),
            30,
        )
        page = study_page(ask)
    assert len(page["trials"]) == 13
    assert "slower than the best so far" in page["trials"][12]["note"]["body"]
    assert page["trials"][0]["artifacts"] == first


def test_a_study_that_goes_away_is_still_shown(
    database: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(app, "REFRESH", 0.0)
    with served(database) as ask:
        database.unlink()
        assert len(study_page(ask)["trials"]) == 12
        study_page(ask)
    assert capsys.readouterr().err.count("showing what was read before") == 1


def test_other_notes_and_artifacts_in_the_database_are_not_served(database: Path) -> None:
    study = optuna.load_study(study_name="fire", storage=f"sqlite:///{database}")
    study._storage.set_study_system_attr(study._study_id, "dashboard:note_ver", 1)
    study._storage.set_study_system_attr(
        study._study_id, "dashboard:note_str:0", "![x](http://evil.example/x.png)"
    )
    study._storage.set_study_system_attr(study._study_id, "dashboard:plot_data:evil:0", "{}")
    study._storage.set_study_system_attr(
        study._study_id, "artifacts:0", '{"artifact_id": "0", "filename": "evil.html"}'
    )
    with contextlib.closing(sqlite3.connect(database)) as base, base:
        page = json.dumps(
            json.dumps({"artifact_id": "1", "filename": "evil.html", "mimetype": "text/html"})
        )
        base.execute(
            "INSERT INTO trial_system_attributes (trial_id, key, value_json) VALUES (1, 'artifacts:1', ?)",
            (page,),
        )
    with served(database) as ask:
        page = study_page(ask)
    assert "evil" not in json.dumps(page)


def test_writable_writes_notes_once_and_keeps_a_persons_own(small: Path) -> None:
    with served(small, writable=True) as ask:
        version = study_page(ask)["trials"][1]["note"]["version"]
        body = json.dumps({"version": version + 1, "body": "mine"})
        json_type = {"Content_Type": "application/json"}
        assert ask("/api/studies/1/2/note", "PUT", body, **json_type)[0] == 204
    with served(small, writable=True) as ask:
        notes = [t["note"] for t in study_page(ask)["trials"]]
        picture = study_page(ask)["trials"][0]["artifacts"][0]["artifact_id"]
        assert ask(f"/artifacts/1/1/{picture}")[2].startswith(b"\x89PNG")
    assert notes[1] == {"version": version + 1, "body": "mine"}
    assert [n["version"] for n in notes] == [1, 2, 1]
    assert len(list(small.with_name("fire.db.artifacts").iterdir())) == 6


def test_writable_refuses_pages_of_other_origins(small: Path) -> None:
    with served(small, writable=True) as ask:
        for headers in (
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Sec_Fetch_Site": "cross-site"},
        ):
            assert (
                ask("/api/studies/1", "DELETE", "{}", Content_Type="application/json", **headers)[0]
                == 403
            )
        assert len(study_page(ask)["trials"]) == 3


def test_writable_lets_its_own_pages_write(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(app, "REFRESH", 0.0)
    with served(small, writable=True) as ask:
        own = {
            "Origin": "http://127.0.0.1:PORT",
            "Host": "127.0.0.1:PORT",
            "Content_Type": "application/json",
        }
        assert ask("/api/studies/1", "DELETE", "{}", **own)[0] == 204
        assert ask("/api/studies/1")[0] == 404
    assert "showing what was read before" in capsys.readouterr().err


def test_another_address_must_be_asked_for_by_name(database: Path) -> None:
    with pytest.raises(ConfigError, match="--allow-remote"):
        app.open_server(find_study(str(database)), "0.0.0.0", 0)


def test_a_remote_server_answers_to_addresses_and_to_no_strange_name(database: Path) -> None:
    with served(database, host="0.0.0.0", allow_remote=True) as ask:
        assert ask("/api/studies", Host="192.168.1.7:8080")[0] == 200
        assert ask("/api/studies", Host="rebound.evil.example:8080")[0] == 403


def test_loopback_is_told_from_the_rest() -> None:
    assert [is_loopback(h) for h in ("127.0.0.1", "127.9.9.9", "::1", "localhost")] == [True] * 4
    assert [is_loopback(h) for h in ("0.0.0.0", "::", "10.0.0.1", "example.org", "")] == [False] * 5


def test_a_port_in_use_names_the_remedy() -> None:
    first = bind("127.0.0.1", 0, lambda e, s: [])
    with (
        first,
        pytest.raises(
            MachineError, match=rf"port {first.server_port} .* in use; give another with --port"
        ),
    ):
        bind("127.0.0.1", first.server_port, lambda e, s: [])


@pytest.mark.parametrize(
    ("host", "port", "error"), [("127.0.0.1", 70000, ConfigError), ("192.0.2.1", 0, MachineError)]
)
def test_an_impossible_address_is_one_line(
    host: str, port: int, error: type[AutosplitError]
) -> None:
    with pytest.raises(error, match="give"):
        bind(host, port, lambda e, s: [])


def test_without_the_dashboard_package_the_remedy_is_named(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna_dashboard", None)
    with pytest.raises(MachineError, match=r"pip install 'autosplit\[dashboard\]'"):
        app.open_server(find_study(str(database)), port=0)


def foreign(file: Path) -> None:
    optuna.create_study(study_name="other", storage=f"sqlite:///{file}")


def newer(file: Path) -> None:
    optuna.create_study(study_name="new", storage=f"sqlite:///{file}").set_user_attr(
        "autosplit", {"format": 99}
    )


def plain_table(file: Path) -> None:
    with contextlib.closing(sqlite3.connect(file)) as base:
        base.execute("CREATE TABLE t (x)")


def cut_off(file: Path) -> None:
    newer(file)
    file.write_bytes(file.read_bytes()[:5000])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda f: None, "does not exist"),
        (lambda f: f.touch(), "is empty"),
        (lambda f: f.write_text("name = 1"), "is no SQLite database"),
        (Path.mkdir, "cannot be read"),
        (plain_table, "no such table|holds no study"),
        (foreign, "holds no study made by autosplit"),
        (newer, "has format 99"),
        (cut_off, "malformed"),
    ],
)
def test_a_database_that_cannot_be_shown_is_one_clear_line(
    tmp_path: Path, make: Callable[[Path], Any], says: str
) -> None:
    file = tmp_path / "some.db"
    make(file)
    with pytest.raises(AutosplitError, match=says) as caught, find_study(str(file)).open():
        pass
    assert "\n" not in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_reader_of_the_output_that_leaves_is_no_damage_of_the_database(database: Path) -> None:
    with pytest.raises(BrokenPipeError), find_study(str(database)).open():
        raise BrokenPipeError


def test_several_studies_need_a_name_and_a_name_picks_one(
    database: Path, graphs: Any, make: Any
) -> None:
    make(database, graphs.chain(20), "second", 1)
    with (
        pytest.raises(ConfigError, match="holds 2 studies \\(fire, second\\)"),
        find_study(str(database)).open(),
    ):
        pass
    with find_study("second", str(database)).open() as study:
        assert study.study_name == "second"
    with (
        pytest.raises(ConfigError, match="holds no study 'third'; it holds fire, second"),
        find_study("third", str(database)).open(),
    ):
        pass


def test_a_study_file_leads_to_its_database(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = database.with_name("fire.toml")
    file.write_text('zoo = "squeezenet"\nstages = 2\n')
    monkeypatch.chdir(database.parent)
    assert find_study(str(file)).file == database


def test_a_password_is_never_shown() -> None:
    assert "secret" not in StudyReader("postgresql+psycopg://me:secret@host/base", "x").location


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork to kill a writer")
def test_a_study_whose_writer_was_killed_can_be_read_and_stays_as_it_was(database: Path) -> None:
    half_done = """
import os, signal, sqlite3, sys
base = sqlite3.connect(sys.argv[1], isolation_level=None)
base.execute("PRAGMA cache_size = 1")
base.execute("BEGIN IMMEDIATE")
for i in range(400):
    base.execute("UPDATE trial_user_attributes SET value_json = '[]' WHERE trial_user_attribute_id = ?", (i,))
    base.execute("INSERT INTO study_user_attributes (study_id, key, value_json) VALUES (1, ?, ?)", (f"k{i}", "x" * 2000))
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert (
        subprocess.run([sys.executable, "-c", half_done, str(database)]).returncode
        == -signal.SIGKILL
    )
    journal = database.with_name("fire.db-journal")
    before = digest(database), digest(journal)
    with find_study(str(database)).open() as study:
        assert len(study.trials) == 12
        assert "k1" not in study.user_attrs
    assert (digest(database), digest(journal)) == before


def test_a_damaged_trial_is_shown_as_failed(database: Path) -> None:
    with contextlib.closing(sqlite3.connect(database)) as base, base:
        base.execute("UPDATE trials SET datetime_complete = NULL WHERE number = 2")
    with served(database) as ask:
        trial = study_page(ask)["trials"][2]
    assert trial["state"] == "Fail"
    assert any("damaged" in a["value"] for a in trial["user_attrs"])


def test_a_path_with_url_characters_is_found(database: Path) -> None:
    odd = shutil.copy(database, database.with_name("a b?%41#c.db"))
    with find_study(str(odd)).open() as study:
        assert study.study_name == "fire"


def test_pictures_are_drawn_when_looked_at_and_kept() -> None:
    drawn: list[int] = []
    pictures = Drawn()
    pictures.put("a", lambda: drawn.append(1) or b"picture")
    assert drawn == []
    assert [pictures.open_reader("a").read() for _ in range(2)] == [b"picture"] * 2
    assert drawn == [1]
