"""The dashboard as a person sees it, in Debian's chromium."""

from __future__ import annotations

import pytest

from tests.report.browser import Browser
from tests.report.serving import Client

pytestmark = pytest.mark.integration
PICTURES = (
    "return [...document.querySelectorAll('img')]"
    ".filter(i => i.src.includes('/artifacts/') && i.naturalWidth)"
)
TEXT = "return document.body.innerText"


def test_notes_pictures_and_the_reason_of_a_failure_are_shown(
    browser: Browser, served: Client
) -> None:
    browser.open(f"{served.study_page}/trials?numbers=3")
    assert browser.wait("return document.querySelectorAll('table td').length > 10")
    assert browser.wait(f"{PICTURES}.length >= 2")
    assert "best so far (trial 2)" in browser.run(TEXT)
    assert "pool4:0 (400 kB)" in browser.run(TEXT)

    browser.open(f"{served.study_page}/trials?numbers=5")
    assert browser.wait(f"{TEXT}.includes('stage 1 ended by signal 11')")

    browser.open(f"{served.study_page}/note")
    assert browser.wait(f"{TEXT}.includes('do not split')")
    assert browser.wait(f"{PICTURES}.length >= 2")

    assert browser.errors() == []
    assert browser.requested() == {f"http://127.0.0.1:{served.port}"}


def test_the_page_itself_cannot_delete_the_study_and_loads_nothing_from_outside(
    browser: Browser, served: Client
) -> None:
    browser.open(served.study_page)
    status = "return fetch('/api/studies/1', {method: '%s'}).then(r => r.status)"
    assert [browser.run(status % method) for method in ("DELETE", "POST")] == [405, 405]
    outside = "return fetch('http://127.0.0.2:9/').then(() => 'loaded', e => e.name)"
    assert browser.run(outside) == "TypeError"
    assert any("Content Security Policy" in message for message in browser.errors())
