import contextlib
import json
import random
import socket
import sqlite3
from unittest.mock import Mock

import optuna
import pytest
from waitress.server import BaseWSGIServer

from autosplit.cli import main
from autosplit.errors import MachineError
from autosplit.report.dashboard import app
from autosplit.report.dashboard.guard import Guard, is_loopback
from autosplit.report.documents.study_reader import find_study
from autosplit.report.html.page import page
from autosplit.study.record import update
from tests.report import graphs
from tests.report.serving import dashboard, running
from tests.report.studies import add_trial

JSON = {"Content_Type": "application/json"}
METHODS = ("DELETE", "POST", "PUT", "PATCH", "OPTIONS", "TRACE", "MIGRATE")


def test_the_first_page_is_the_report(served, study):
    body = served.ask("/").body.decode()
    assert served.url == f"http://127.0.0.1:{served.port}/"
    assert body == page(study, "/dashboard/studies/1")
    for text in ("Two replicas are 3 % faster", "The best split: trial 8", "Read-only"):
        assert text in body


def test_every_page_of_optuna_dashboard_leads_back(served):
    for path in ("/dashboard", "/dashboard/studies/1/note"):
        answer = served.ask(path, If_Modified_Since="Fri, 01 Jan 2100 00:00:00 GMT")
        assert b'Read-only. <a href="/">' in answer.body
        assert int(answer.headers["content-length"]) == len(answer.body)


def test_every_method_that_could_write_is_refused(served):
    answers = [served.ask("/api/studies/1", method, "{}", **JSON) for method in METHODS]
    assert [(a.status, a.headers["allow"]) for a in answers] == [(405, "GET, HEAD")] * 7


def test_this_machine_is_answered_and_another_host_is_not(served):
    mine = ("localhost:80", "LOCALHOST", "127.0.0.1:PORT", "[::1]:80")
    assert [served.ask("/", m, Host=h).status for h in mine for m in ("GET", "HEAD")] == [200] * 8
    others = ("evil.example", "evil.example:PORT", "127.0.0.1.evil.example", "10.0.0.1", "")
    others += ("[::2]", "[::1")
    assert [served.ask("/api/studies", Host=host).status for host in others] == [403] * 7


def test_a_page_of_another_origin_is_refused(served):
    assert served.ask("/", Origin="http://localhost:8080").status == 200
    others = ("http://evil.example", "http://localhost.evil.example", "null")
    assert [served.ask("/", Origin=origin).status for origin in others] == [403] * 3


def test_headers_keep_others_out(served):
    def application(environ, start_response):
        """Lets every origin read it."""
        start_response("200 OK", [("Access-Control-Allow-Origin", "*"), ("X-Kept", "yes")])
        return [b"page"]

    server = app.http_server(Guard(lambda: application, {"127.0.0.1"}), "127.0.0.1", 0)
    with running(server) as client:
        headers = client.ask("/dashboard/studies/1").headers
    policy = "default-src 'self'; script-src 'self' 'unsafe"
    assert headers["content-security-policy"].startswith(policy)
    assert "access-control-allow-origin" not in headers
    names = ("x-kept", "x-content-type-options", "cross-origin-resource-policy")
    assert [headers[name] for name in names] == ["yes", "nosniff", "same-origin"]
    policy = served.ask("/").headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")


def test_loopback_addresses_are_known():
    hosts = ("127.0.0.1", "127.9.9.9", "::1", "localhost")
    assert [is_loopback(h) for h in hosts] == [True] * 4
    others = ("0.0.0.0", "::", "10.0.0.1", "example.org", "")
    assert [is_loopback(h) for h in others] == [False] * 5


def test_a_running_study_can_be_watched(database, monkeypatch):
    monkeypatch.setattr(app, "REFRESH", 0.0)
    with dashboard(find_study(str(database))) as client:
        study = optuna.load_study(study_name="fire", storage=f"sqlite:///{database}")
        add_trial(study, graphs.fire_net(), 30)
        add_trial(study, graphs.fire_net(), 31)
        asked = study.ask()
        update(asked, cuts=[["<conv>"]], predicted_ms=12.5)
        shown = client.study()
        body = client.ask("/").body.decode()
    assert len(shown["trials"]) == 15
    assert {"key": "period", "sortable": True} in shown["union_user_attrs"]
    assert "Trial 14 is being measured, cut after &lt;conv&gt;, predicted 12.5 ms." in body


def test_a_trial_that_begins_after_the_study_was_read_is_left_out(database):
    study = optuna.load_study(study_name="fire", storage=f"sqlite:///{database}")
    record = app.read(study)
    study.ask()
    assert len(app.copy(study, record).trials) == len(record.trials)


def test_a_study_that_goes_away_is_still_shown(database, monkeypatch, capsys):
    monkeypatch.setattr(app, "REFRESH", 0.0)
    with dashboard(find_study(str(database))) as client:
        database.unlink()
        assert len(client.study()["trials"]) == 12
        client.study()
    assert capsys.readouterr().err.count("showing what was read before") == 1


def test_other_notes_and_artifacts_in_the_database_are_not_served(database):
    study = optuna.load_study(study_name="fire", storage=f"sqlite:///{database}")
    attributes = {
        "dashboard:note_ver": 1, "dashboard:note_str:0": "![x](http://evil.example/x.png)",
        "dashboard:plot_data:evil:0": "{}",
        "artifacts:0": '{"artifact_id": "0", "filename": "evil.html"}',
    }  # fmt: skip
    for key, value in attributes.items():
        study._storage.set_study_system_attr(study._study_id, key, value)
    artifact = {"artifact_id": "1", "filename": "evil.html", "mimetype": "text/html"}
    with contextlib.closing(sqlite3.connect(database)) as base, base:
        row = "INSERT INTO trial_system_attributes (trial_id, key, value_json) VALUES (1, ?, ?)"
        base.execute(row, ("artifacts:1", json.dumps(json.dumps(artifact))))
    with dashboard(find_study(str(database))) as client:
        assert "evil" not in json.dumps(client.study())


def test_a_remote_server_answers_to_addresses_and_to_no_strange_name(database):
    hosts = {
        "192.168.1.7:8080": 200, "[2001:db8::1]:80": 200, "rebound.evil.example:8080": 403,
        "1.2.3.4.evil": 403,
    }  # fmt: skip
    with dashboard(find_study(str(database)), host="0.0.0.0", allow_remote=True) as client:
        assert {host: client.ask("/api/studies", Host=host).status for host in hosts} == hosts


def test_the_command_prints_the_url_until_it_is_interrupted(finished, monkeypatch, capsys):
    monkeypatch.setattr(BaseWSGIServer, "run", Mock())
    words = ["--port", "0", "-f", "json", "--allow-remote", "--host", "127.0.0.1"]
    assert main(["dashboard", str(finished), *words]) == 130
    printed, errors = capsys.readouterr()
    assert json.loads(printed)["url"].startswith("http://127.0.0.1:")
    warning = "autosplit: everyone who can reach this address can read the study"
    assert errors.splitlines() == [warning, "autosplit: interrupted"]


@pytest.mark.integration
@pytest.mark.parametrize(
    "sent", [b"", b"GET / HT", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\na"]
)
def test_an_idle_connection_is_closed(finished, monkeypatch, sent):
    monkeypatch.setattr(app, "IDLE_SECONDS", 1)
    with (
        dashboard(find_study(str(finished))) as client,
        socket.create_connection(("127.0.0.1", client.port), 10) as asking,
    ):
        asking.send(sent)
        while asking.recv(2**16):
            pass


def test_clients_that_do_not_read_their_answers_block_nobody(monkeypatch):
    def application(environ, start_response):
        # More than the buffers of a socket take.
        parts = [b"x" * 2**23] * 4 if environ["PATH_INFO"] == "/big" else [b"page"]
        start_response("200 OK", [("Content-Length", str(sum(map(len, parts))))])
        return parts

    monkeypatch.setattr(app, "THREADS", 2)
    server = app.http_server(application, "127.0.0.1", 0)
    with running(server) as client, contextlib.ExitStack() as stack:
        for _ in range(5):
            asking = stack.enter_context(socket.create_connection(("127.0.0.1", client.port)))
            asking.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            asking.send(b"GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.ask("/").body == b"page"


@pytest.mark.parametrize("many", [{"X": "x" * 2**16}, {f"X{i}": "x" * 99 for i in range(999)}])
def test_huge_headers_are_refused(served, many):
    # the connection may be closed before all is sent
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        assert served.ask("/", **many).status == 431
    assert served.ask("/").status == 200


def test_a_huge_body_is_refused_before_it_is_sent(served):
    assert served.ask("/", "POST", Content_Length=str(2**40)).status == 413


def test_an_address_of_version_6_is_served(finished):
    try:
        server, url = app.open_server(find_study(str(finished)), "::1", 0)
    except MachineError:
        pytest.skip("this machine has no IPv6")
    with running(server) as client, socket.create_connection(("::1", client.port)) as asking:
        assert url == f"http://[::1]:{client.port}/"
        asking.send(b"GET / HTTP/1.0\r\nHost: [::1]\r\n\r\n")
        assert asking.recv(100).startswith(b"HTTP/1.0 200")


METHOD_NAMES = ("GET", "GET", "HEAD", "get", "\t", *METHODS)
PATHS = (
    "/", "/dashboard/studies/1", "/api/studies", "/api/studies/1", "/api/studies/1/1/note",
    "/api/trials/1/tell", "/artifacts/1/1/x", "/csv/1", "/static/favicon.ico", "/api/meta",
)  # fmt: skip
TAILS = ("", "", "/../..", "%00", "%2e%2e%2fetc%2fpasswd", "?after=-1", "?after=x", "/9" * 99, "é")
FIELDS = ("Host", "Origin", "Content-Length", "Transfer-Encoding", "X-HTTP-Method-Override", "X")
VALUES = ("", "0", "-1", "evil.example", "null", "chunked", "DELETE", "\x00", "x" * 999, "\udcff")
BODIES = ("", "{}", "[]", '{"body": "x", "version": 99}', "\x00", '{"state": "Complete"}')


def test_no_random_request_changes_the_study_or_stops_the_dashboard(database):
    before, draw = database.read_bytes(), random.Random(13)
    with dashboard(find_study(str(database))) as client:
        shown = client.study()
        for _ in range(200):
            path, body = draw.choice(PATHS) + draw.choice(TAILS), draw.choice(BODIES)
            lines = [f"{draw.choice(METHOD_NAMES)} {path} HTTP/1.1", "Host: localhost"]
            lines += [f"{draw.choice(FIELDS)}: {draw.choice(VALUES)}", "Connection: close"]
            sent = "\r\n".join([*lines, "", body]).encode(errors="surrogateescape")
            with socket.create_connection(("127.0.0.1", client.port), 0.2) as asking:
                asking.sendall(sent)
                received = b""
                # The server may wait for more of the request.
                with contextlib.suppress(TimeoutError, ConnectionResetError):
                    while part := asking.recv(2**16):
                        received += part
            assert b"Traceback" not in received, sent
            assert b"root:x:" not in received, sent
        assert client.study() == shown
    assert database.read_bytes() == before
    assert list(database.parent.iterdir()) == [database]
