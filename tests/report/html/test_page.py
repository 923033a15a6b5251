import functools
import html
import math
import re
import tomllib
from dataclasses import replace
from html.parser import HTMLParser

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.report.documents.record import Study, read
from autosplit.report.documents.study_reader import StudyReader
from autosplit.report.html import page
from autosplit.study.record import RECORD, StudyRecord, TrialRecord
from tests.report import graphs
from tests.report.browser import WIDER
from tests.report.studies import changed, make_study, store, trial
from tests.strategies import documents

HOSTILE = "</style><script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;"
WORDS = re.compile(r"\w+")
KNOWN_TAGS = WORDS.findall("""html head meta title style body main header section p h1 h2 strong dl
    div dt dd nav wbr figure figcaption table thead tbody tr th td pre code svg g path rect text
    title a details summary caption script button""")
# keys of attributes that a hostile database keeps, so that their values are read
KNOWN_KEYS = {*StudyRecord.model_fields, *TrialRecord.model_fields} | {
    *WORDS.findall("""median low high op_ms period_ms latency_ms bytes shape ops tensors name kernel
    sources inputs outputs weight_bytes dtype device copies text""")
}


class Parsed(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text, self.open = [], "", []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "wbr", "!doctype"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def safe(text):
    """The page, checked that nothing in it runs, loads or is left open."""
    # Its own script is known by its digest; with it in place no other is left.
    assert text.count(page.SCRIPT) == 1
    parsed = Parsed(text.replace(f"<script>{page.SCRIPT}</script>", ""))
    assert parsed.open == []
    assert {tag for tag, _ in parsed.tags} <= {*KNOWN_TAGS}
    for _, attributes in parsed.tags:
        assert not [a for a in attributes if a.startswith("on") or a in ("src", "action")]
        assert attributes.get("href", "#").startswith("#")
    ids = [attributes["id"] for _, attributes in parsed.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    return parsed


def test_the_page_tells_question_verdict_ways_trials_machine_and_pictures(study):
    parsed = safe(page.page(changed(study, machine="AMD EPYC x2 vm")))
    assert "How is squeezenet best split into 2 stages on cores:0, cores:1?" in parsed.text
    assert "Two replicas are 3 % faster than the best split; do not split." in parsed.text
    assert "stage 1 ended by signal 11; its kernels may be broken" in parsed.text
    said = ["one core", "all cores", "best split (trial 8)", "12, 1 failed", "AMD EPYC x2 vm"]
    said += ["best split (trial 8), measured10.7 (10.5 to 10.9) ms", "predicted for it10.5 ms"]
    for text in (*said, "autosplit 0.1.0"):
        assert text in parsed.text
    labels = [a["aria-label"] for _, a in parsed.tags if a.get("class") == "picture"]
    assert len(list(filter(None, labels))) == 3


def test_the_best_and_the_failed_rows_are_marked(study):
    text = page.page(changed(study, verdict=StudyRecord().verdict))
    marked = re.findall(r'<tr role="row" class="best">(.*?)</tr>', text, re.DOTALL)
    way, of_trial = marked  # among the ways to run it, and among the trials
    assert "best split" in way
    assert '<th scope="row" role="rowheader" data-label="trial">8</th>' in of_trial
    assert len(re.findall(r'<tr role="row" class="fail">', text)) == 1
    assert "12, 1 failed" in text


def test_the_study_file_reads_back_without_folders_and_without_storage(study):
    config = {"name": "fire", "model": "/home/me/net.onnx", "stages": 2}
    config["storage"] = "postgresql://me:secret@db/x"
    config |= {"search": {"trials": 3, "timeout": None}, "limits": {}, "tuning": "/tmp/tuned"}
    text = page.page(changed(study, config=config))
    assert "secret" not in text
    assert "/home/me" not in text
    assert "/tmp" not in text
    file = html.unescape(text.split("<pre>")[1].split("</pre>")[0])
    recorded = {"name": "fire", "model": "net.onnx", "stages": 2, "search": {"trials": 3}}
    assert tomllib.loads(file) == recorded | {"tuning": "tuned", "objective": "throughput"}


def test_a_study_that_has_nothing_or_failed_is_a_page(study):
    parsed = safe(page.page(Study("empty")))
    assert "None yet; the study has not ended." in parsed.text
    assert "The study file was not recorded" in parsed.text
    parsed = safe(page.page(replace(study, trials=tuple(t for t in study.trials if t.error))))
    assert "signal 11" in parsed.text
    assert "svg" not in [tag for tag, _ in parsed.tags]


def hostile(study, text):
    """A copy with the text in every place a database has for one."""
    copy = optuna.create_study(study_name=text)
    for key, value in study.user_attrs.items():
        copy.set_user_attr(key, _poisoned(value, text))
    for stored in study.get_trials():
        stored.user_attrs = {k: _poisoned(v, text) for k, v in stored.user_attrs.items()}
        copy.add_trial(stored)
    return copy


def _poisoned(value, text):
    if isinstance(value, str):
        return value + text
    if isinstance(value, list):
        return [_poisoned(v, text) for v in value]
    if isinstance(value, dict):
        return {k if k in KNOWN_KEYS else k + text: _poisoned(v, text) for k, v in value.items()}
    return value


@pytest.mark.parametrize(
    "text", [HOSTILE, "{{ 7 * 7 }}", "{% endif %}", "\ud800", "\u202e", "]]>", "a\0b", "{", "%s"]
)
def test_text_of_a_database_is_shown_and_never_run(database, tmp_path, text):
    with StudyReader(f"sqlite:///{database}", "fire").open() as stored:
        record = read(hostile(stored, text))
    page.write(record, tmp_path / "report.html")
    parsed = safe((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert [tag for tag, _ in parsed.tags].count("svg") >= 4
    if text == HOSTILE:
        assert "<script>alert(1)</script>" in parsed.text


JSON = documents(st.integers() | st.floats(allow_nan=False))
OF_STUDY = st.sampled_from(sorted(StudyRecord.model_fields.keys() - {"format"}))
OF_TRIAL = st.sampled_from(sorted(TrialRecord.model_fields))


@pytest.fixture(scope="module")
def brief():
    """A study whose page is drawn in a moment."""
    return make_study("sqlite://", graphs.chain(14), trials=2)


@given(st.dictionaries(OF_STUDY, JSON), st.dictionaries(OF_TRIAL, JSON))
def test_any_attributes_make_a_page(brief, of_study, of_trial):
    study = hostile(brief, "")
    store(study, **of_study)
    trial = study.get_trials()[0]
    trial.user_attrs[RECORD] |= of_trial
    study.add_trial(trial)
    safe(page.page(read(study)))
    tomllib.loads(page.study_file(read(study).record.config))


def test_a_study_file_that_this_version_cannot_read_is_not_shown():
    deep = functools.reduce(lambda inner, _: [{"k": inner}], range(500), 1)
    config = {"name": "fire", "model": "net.onnx", "stages": 2}
    assert page.study_file(config)
    for wrong in ({"memory": deep}, {"model": "\ud800b"}, {"unknown": 1}, {"tolerance": math.inf}):
        assert page.study_file(config | wrong) == ""


def test_replicas_are_a_configuration_and_their_busy_time_is_shared(study):
    record = {"stages": ((0, 1),), "replicas": (2,), "threads": (1,), "stage_ms": (62.6,)}
    shown = changed(study, trials=(trial(0, 31.5, **record),), config={"cores": 2}, graph=None)
    parsed = safe(page.page(shown))
    assert "The best configuration on 2 cores: trial 0" in parsed.text
    assert "best configuration on 2 cores (trial 0), measured31.5 ms" in parsed.text
    assert "31.399%" in parsed.text  # busy, and its share of the period


def test_the_command_writes_the_page(database, tmp_path, as_json):
    file = tmp_path / "new" / "report.html"
    assert as_json("report", database, "-o", file) == {"file": str(file)}
    assert [p.name for p in file.parent.iterdir()] == ["report.html"]


@pytest.mark.integration
def test_a_hostile_page_runs_nothing_and_fits_the_phone(browser, finished, tmp_path):
    with StudyReader(f"sqlite:///{finished}", "fire").open() as stored:
        page.write(read(hostile(stored, HOSTILE + "x" * 300)), tmp_path / "report.html")
    browser.view(390)
    browser.open((tmp_path / "report.html").as_uri())
    assert browser.run("return document.querySelectorAll('script, img').length") == 1
    assert browser.run(WIDER) == 0
    assert browser.errors() == []
