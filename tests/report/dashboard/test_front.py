"""The first page of the dashboard: the answer, what is measured now, two trials side by side."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest

from autosplit.report.dashboard import app
from autosplit.report.dashboard.front import Front
from autosplit.report.documents.record import Study, Trial
from autosplit.report.documents.study_reader import find_study
from autosplit.report.html import compare
from autosplit.study.record import update
from tests.report.serving import Client, dashboard


def news(client: Client) -> dict[str, Any]:
    """What the page is told, as its browser reads it."""
    answer = client.ask("/events")
    assert answer.headers["content-type"] == "text/event-stream"
    (line,) = (x for x in answer.body.decode().splitlines() if x.startswith("data: "))
    return dict(json.loads(line.removeprefix("data: ")))


def asked(record: Study, path: str, query: str = "") -> str:
    """The body of a page of a record."""
    environ = {"PATH_INFO": path, "QUERY_STRING": query, "REQUEST_METHOD": "GET"}
    front = Front(lambda *_: [], record, "/dashboard/studies/1", "v1")
    return b"".join(front(environ, lambda *_: lambda data: None)).decode()


def test_it_opens_on_the_answer_and_says_that_it_is_read_only(served: Client) -> None:
    body = served.ask("/").body.decode()
    assert served.url == f"http://127.0.0.1:{served.port}/"
    for text in ("Two replicas are 3 % faster", "The best split: trial 8", "Read-only"):
        assert text in body
    assert 'href="/dashboard/studies/1"' in body


def test_the_news_name_the_trial_that_is_measured(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "REFRESH", 0.0)
    with dashboard(find_study(str(small))) as client:
        before = news(client)
        study = optuna.load_study(study_name="fire", storage=f"sqlite:///{small}")
        trial = study.ask()
        update(trial, cuts=[["<conv>"]], predicted_ms=12.5)
        after = news(client)
    assert before["text"] == "3 trials measured. None is being measured now."
    assert after["text"].endswith("Trial 3 is being measured, cut after <conv>, predicted 12.5 ms.")
    assert before["version"] != after["version"]


def test_two_trials_say_what_moved_and_what_it_did(study: Study) -> None:
    first, second = study.trials[3], study.trials[8]
    table = compare.moves(study, first, second, lambda text, limit: text)
    assert [row[:3] for row in table.rows] == [("1 to 0", "5", "2.5 ms")]
    assert table.rows[0][3].startswith("squeezenet0_fire5/squeeze1x1_relu, ")
    effects = {row[0]: row[1:] for row in compare.effects(study, first, second).rows}
    assert effects["period"] == ("13.2 ms", "10.7 ms", "-18.9 %")
    assert effects["stage 0, busy"] == ("7.5 ms", "10 ms", "+33.3 %")
    assert effects["live tensors"] == ("400 kB", "200 kB", "-50.0 %")


def test_equal_trials_moved_nothing(study: Study) -> None:
    table = compare.moves(study, study.trials[3], study.trials[3], lambda text, limit: text)
    assert table.rows == (("none", "0", "", "both trials have the same stages"),)


@pytest.mark.parametrize(
    ("query", "heading"),
    [
        ("a=3&b=8", "Trial 3 beside trial 8"),
        ("b=2", "Trial 2 beside trial 7"),
        ("", "Trial 7 beside trial 8"),
        ("a=99&b=<script>", "Trial 7 beside trial 8"),
        ("a=3&b=3", "Trial 3 beside trial 3"),
    ],
)
def test_any_two_trials_are_compared(study: Study, query: str, heading: str) -> None:
    assert f"<h1>{heading}</h1>" in asked(study, "/compare", query)


@pytest.mark.parametrize("path", ["/", "/compare", "/events"])
def test_text_of_a_database_is_never_markup(study: Study, path: str) -> None:
    text = "<b onload=x>'\""
    trials = tuple(
        Trial(n, "running", cuts=((text,),), stages=((0,), (1,)), error=text) for n in (0, 1)
    )
    evil = replace(study, name=text, trials=trials, verdict=text, graph=None, stopped=text)
    assert "<b onload" not in asked(evil, path).partition("data: ")[0]


def test_a_study_without_trials_has_an_answer(study: Study) -> None:
    empty = replace(study, trials=())
    assert "There are no two trials yet" in asked(empty, "/compare")
    assert "0 trials measured" in asked(empty, "/")


def test_every_page_of_optuna_dashboard_leads_back(served: Client) -> None:
    for path in ("/dashboard", "/dashboard/studies/1/note"):
        answer = served.ask(path, If_Modified_Since="Fri, 01 Jan 2100 00:00:00 GMT")
        assert b'Read-only. <a href="/">' in answer.body
        assert int(answer.headers["content-length"]) == len(answer.body)
