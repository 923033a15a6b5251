"""The report and the dashboard's own pages as a person sees and hears them, in chromium."""

from dataclasses import replace

import optuna
import pytest

from autosplit import cuts
from autosplit.report.documents.study_reader import find_study
from autosplit.report.html import page
from tests.report.browser import ROOT, WIDER
from tests.report.serving import dashboard
from tests.report.studies import changed, store

pytestmark = pytest.mark.integration

OUTSIDE = f"""return [...document.querySelectorAll('main *')]
  .filter(e => !e.closest('.frame') && !e.closest('thead'))
  .filter(e => e.getBoundingClientRect().right > {ROOT}.clientWidth + 1
    || e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX !== 'visible')
  .map(e => e.outerHTML.slice(0, 80))"""
COLOUR = "return getComputedStyle(document.body).backgroundColor"
TIP = "return document.querySelector('.tip:not([hidden])')?.textContent"
OPS = "[...document.querySelectorAll('.frame .node[data-ops]')]"
OPEN_ALL = "document.querySelectorAll('details').forEach(e => { e.open = true; })"
PLACE = "return document.querySelector('.frame').getBoundingClientRect().top"


def with_cuts(study):
    """The study with a predicted period for each legal cut: half a millisecond an op."""
    count = len(study.graph.ops)
    legal = cuts.downsets(study.graph)[1:-1]
    periods = [(c, 0.5 * max(c.bit_count(), count - c.bit_count())) for c in legal]
    return replace(study, cut_periods=tuple(periods))


@pytest.fixture(scope="module")
def report(study, tmp_path_factory):
    """The address of a report."""
    file = tmp_path_factory.mktemp("report") / "report.html"
    identity = {"model sha256": "ab" * 32, "target": "llvm -mcpu=x86-64-v4 -num-cores=2"}
    page.write(changed(with_cuts(study), identity=identity), file)
    return file.as_uri()


@pytest.fixture
def opened(browser, report):
    browser.open(report)
    return browser


@pytest.fixture(params=["report", "dashboard"])
def either(request, browser, report, served):
    """The browser on the report, and on the dashboard's first page."""
    browser.open(report if request.param == "report" else served.url)
    return browser


def test_nothing_is_cut_off_and_all_can_be_heard(either, served):
    """Where things lie depends on the width, what can be told apart on the colours."""
    either.run(OPEN_ALL)
    for width, dark in ((1400, False), (1400, True), (1024, False), (390, False)):
        either.view(width, dark)
        assert either.run(WIDER) == 0
        assert either.run(OUTSIDE) == []
        assert either.accessibility() == []
    assert either.errors() == []
    assert either.requested() <= {f"http://127.0.0.1:{served.port}"}


def test_a_dark_page_has_dark_pictures(browser, report):
    colours = []
    for dark in (False, True):
        browser.view(1400, dark)
        browser.open(report)
        paper = "return getComputedStyle(document.querySelector('.picture .paper')).fill"
        colours.append((browser.run(COLOUR), browser.run(paper)))
    assert colours[0][1] == "rgb(255, 255, 255)"
    assert all(light != dark for light, dark in zip(*colours, strict=True))


def test_pointing_at_a_box_or_a_mark_says_what_it_is(opened):
    opened.point(opened.run(f"return {OPS}[15]"))
    said = opened.run(TIP)
    assert "0.5 ms\nstage 0, cores:0, tvm\nreads" in said
    assert "source nodes: squeezenet0_fire" in said
    mark = "document.querySelectorAll('.charts .node path:last-child')[4]"
    opened.run(f"{mark}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
    opened.point(opened.run(f"return {mark}"))
    assert opened.wait(TIP).startswith("in the search, trial")
    opened.run(f"{OPS}[15].focus()")
    assert opened.run(TIP) == said


def test_keys_lead_from_mark_to_mark_of_a_chart(either):
    focused = "return document.activeElement.getAttribute('aria-label')"
    charts = "[...document.querySelectorAll('figure.chart svg')]"
    stops = f"return {charts}.map(e => e.querySelectorAll('.node[tabindex=\"0\"]').length)"
    assert set(either.run(stops)) == {1}
    names = f"return [...{charts}[0].querySelectorAll('.node')].map(e => e.ariaLabel)"
    marks = either.run(names)
    first, second, last = marks[0], marks[1], marks[-1]
    either.press("figure.chart svg .node", "\ue014")  # the right arrow
    assert (either.run(focused), either.run(TIP)) == (second, second)
    either.press("figure.chart svg .node:focus", "\ue010")  # end
    assert either.run(focused) == last
    either.press("figure.chart svg .node:focus", "\ue011", "\ue012")  # home, the left arrow
    assert (either.run(focused), either.run(TIP)) == (first, first)
    assert set(either.run(stops)) == {1}
    assert either.accessibility() == []


def test_a_legal_cut_that_is_pointed_at_dims_the_ops_after_it(opened):
    opened.run(OPEN_ALL)
    assert opened.run("return document.querySelectorAll('tr[data-cut]').length") == 48
    dimmed = f"return {OPS}.filter(e => e.classList.contains('after')).length"
    assert opened.run(dimmed) == 0
    opened.run("document.querySelectorAll('tr[data-cut]')[1].focus()")
    assert opened.run(dimmed) == opened.run(f"return {OPS}.length") - 2
    assert opened.run("return document.querySelectorAll('tr.chosen').length") == 1


def test_an_op_can_be_found_by_its_name(opened):
    opened.press("input[type=search]", *"fire6/squeeze1x1_relu")
    matches = opened.run(f"return {OPS}.filter(e => e.matches('.match')).length")
    said = opened.run("return document.querySelector('output').textContent")
    assert said == f"{matches} of {opened.run(f'return {OPS}.length')}"
    assert 0 < matches < 10


def test_trials_are_sorted_and_filtered(browser, served):
    browser.open(served.url)
    rows = """return [...document.querySelectorAll('.sortable tbody tr')]
      .filter(e => e.getClientRects().length).map(e => e.cells[0].textContent)"""
    everything = browser.run(rows)
    click = "document.querySelectorAll('.sortable th button')[2].click()"
    browser.run(click)
    assert browser.run(rows)[0] == "8"  # of the least period
    assert browser.run(rows)[-1] == "5"  # of none
    browser.run(click)
    assert browser.run(rows)[0] == "0"
    assert browser.run(rows)[-1] == "5"
    browser.press("section > .bar input", *"signal 11")
    assert browser.run(rows) == ["5"]
    assert len(everything) == 12
    assert browser.accessibility() == []


def test_what_changes_in_a_running_study_changes_in_place(browser, database):
    with dashboard(find_study(str(database))) as client:
        browser.open(client.url)
        browser.run(OPEN_ALL)
        browser.run("scrollTo(0, 400); window.stays = true")
        browser.run("document.querySelector('.frame').scrollTop = 60")
        place = browser.run(PLACE)
        study = optuna.load_study(study_name="fire", storage=f"sqlite:///{database}")
        store(study, verdict={"choice": "leave", "text": "Changed meanwhile."})
        # The server looks at most every few seconds.
        assert browser.wait("return document.body.innerText.includes('Changed meanwhile.')")
        assert browser.run("return window.stays")
        assert browser.run("return document.querySelector('.frame').scrollTop") == 60
        # What is looked at stays where it is, whatever changes above.
        assert browser.run(PLACE) == pytest.approx(place, abs=2)
        assert browser.run("return [...document.querySelectorAll('details')].every(e => e.open)")
        assert browser.errors() == []


def test_read_only_can_be_seen_in_optuna_dashboard(browser, served):
    shown = """return [...document.querySelectorAll('[data-testid="%s"]')]
      .filter(e => e.getClientRects().length).length"""
    browser.open(f"{served.url}dashboard/studies/1/note")
    there = "return document.querySelector('[data-testid=\"EditIcon\"]') !== null"
    assert browser.wait(there)
    assert browser.run(shown % "EditIcon") == 0
    assert "Read-only" in browser.run("return document.body.innerText")
