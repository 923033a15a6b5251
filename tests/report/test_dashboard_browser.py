"""The dashboard as a person sees it, in Debian's chromium."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autosplit.report.dashboard import app
from autosplit.report.documents.study_reader import find_study

_SPEC = importlib.util.spec_from_file_location(
    "report_browser", Path(__file__).with_name("browser.py")
)
assert _SPEC is not None
assert _SPEC.loader is not None
driving = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(driving)

pytestmark = pytest.mark.skipif(
    not (driving.CHROMIUM and driving.DRIVER),
    reason="needs chromium and chromedriver: apt install chromium-driver",
)
PICTURES = "return [...document.querySelectorAll('img')].filter(i => i.src.includes('/artifacts/') && i.naturalWidth)"
TEXT = "return document.body.innerText"


@pytest.fixture
def url(database: Path) -> Iterator[str]:
    server, url = app.open_server(find_study(str(database)), port=0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield url
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    with driving.browsing(tmp_path) as browser:
        yield browser


def test_a_person_finds_notes_pictures_plots_and_the_reason_of_a_failure(
    browser: Any, url: str
) -> None:
    browser.open(f"{url}/trials?numbers=3")
    assert browser.wait("return document.querySelectorAll('table td').length > 10")
    assert browser.wait(f"{PICTURES}.length >= 2")
    assert "best so far (trial 2)" in browser.run(TEXT)
    assert "pool4:0 (400 kB)" in browser.run(TEXT)

    browser.open(f"{url}/trials?numbers=5")
    assert browser.wait(f"{TEXT}.includes('stage 1 ended by signal 11')")

    browser.open(url)
    drawn = "return document.querySelectorAll('[id^=\"user-defined-plot:\"] .main-svg').length >= 4"
    assert browser.wait(drawn)
    assert "Pareto front" in browser.run("return document.body.textContent")

    browser.open(f"{url}/note")
    assert browser.wait(f"{TEXT}.includes('do not split')")
    assert browser.wait(f"{PICTURES}.length >= 2")

    assert browser.errors() == []
    assert browser.requested() == {"/".join(url.split("/")[:3])}


def test_the_page_itself_cannot_delete_the_study_and_loads_nothing_from_outside(
    browser: Any, url: str
) -> None:
    browser.open(url)
    status = "return fetch('/api/studies/1', {method: '%s'}).then(r => r.status)"
    assert [browser.run(status % method) for method in ("DELETE", "POST")] == [405, 405]
    outside = "return fetch('http://127.0.0.2:9/').then(() => 'loaded', e => e.name)"
    assert browser.run(outside) == "TypeError"
    assert any("Content Security Policy" in message for message in browser.errors())
