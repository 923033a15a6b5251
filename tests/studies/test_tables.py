import json
from pathlib import Path
from typing import Any

import make_tables
import outcome
import pytest

from autosplit.errors import ConfigError

PERIOD = {"median": 3.0, "low": 2.9, "high": 3.1}
STUDY: dict[str, Any] = {
    "date": "2030-01-31",
    "environment": {"machine": "m", "python": "3.11"},
    "trials": [{}, {}],
    "best": {"period_ms": PERIOD, "duel_ms": None},
    "baselines": [{"name": "one core", "period_ms": {"median": 6.0, "low": 5.9, "high": 6.1}}],
    "verdict": {"choice": "split"},
}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    bars = [outcome.at_most("error", 6.0, 5.0)]
    outcome.finish(
        "study",
        ["net", "a|b"],
        [["<x>", 1]],
        notes=["so *it* is"],
        bars=bars,
        file=tmp_path / "study.json",
    )
    outcome.write(tmp_path / "studies" / "net_onnxruntime.json", STUDY)
    return tmp_path


def page(*markers: str) -> str:
    return (
        "before\n"
        + "\n".join(f"<!-- results: {m} -->\nstale\n<!-- end -->\nbetween" for m in markers)
        + "\nafter"
    )


def test_a_table_stands_between_its_markers(results: Path) -> None:
    text = make_tables.filled(page("study"), results)
    assert text.startswith(
        "before\n<!-- results: study -->\n| net | a\\|b |\n|---|---|\n| \\<x> | 1 |\n\n- so \\*it\\* is"
    )
    assert "| error | 6 | at most 5 | MISSED |" in text
    assert text.endswith("\n<!-- end -->\nbetween\nafter")
    assert "stale" not in text


def test_filling_again_changes_nothing(results: Path) -> None:
    once = make_tables.filled(page("study", "study bars", "summary", "studies", "absent"), results)
    assert make_tables.filled(once, results) == once


def test_a_marker_can_ask_for_a_part(results: Path) -> None:
    table, bars = (make_tables.filled(page(f"study {part}"), results) for part in ("table", "bars"))
    assert ("| net |" in table, "MISSED" in table) == (True, False)
    assert ("| net |" in bars, "MISSED" in bars) == (False, True)


def test_the_summary_holds_the_bars_of_all(results: Path) -> None:
    assert "| study | error | 6 | at most 5 | MISSED |" in make_tables.filled(
        page("summary"), results
    )


def test_a_study_is_a_row(results: Path) -> None:
    text = make_tables.filled(page("studies"), results)
    assert (
        "| net | onnxruntime | 2 | 3.00 (2.90 to 3.10) | 6.00 (5.90 to 6.10) |  |  | split |"
        in text
    )
    assert "`python studies/run_studies.py, 2030-01-31, machine m, python 3.11`" in text


def test_a_study_that_compared_its_best_in_turns_tells_that_period(results: Path) -> None:
    best = {**STUDY["best"], "duel_ms": {"median": 2.0, "low": 1.9, "high": 2.1}}
    outcome.write(results / "studies" / "net.json", {**STUDY, "best": best})
    assert "| net | TVM | 2 | 2.00 (1.90 to 2.10) |" in make_tables.filled(page("studies"), results)


def test_a_result_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    text = make_tables.filled(page("study", "summary", "studies"), tmp_path)
    assert text.count("*Not measured yet.*") == 3


def test_a_marker_without_an_end_is_refused(results: Path) -> None:
    with pytest.raises(ConfigError, match="has no '<!-- end -->'"):
        make_tables.filled("<!-- results: study -->\nstale\n", results)


@pytest.mark.parametrize(
    "document", ["{", "[]", {}, {**STUDY, "baselines": [{}]}, {**STUDY, "date": None, "trials": 3}]
)
def test_a_damaged_study_is_refused(document: Any, results: Path) -> None:
    text = document if isinstance(document, str) else json.dumps(document)
    (results / "studies" / "x.json").write_text(text)
    with pytest.raises(ConfigError, match="is no result of a study"):
        make_tables.filled(page("studies"), results)


@pytest.mark.parametrize(
    "file", make_tables.PAGES, ids=lambda file: file.relative_to(make_tables.ROOT).as_posix()
)
def test_the_tables_of_the_pages_are_those_of_the_results(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert make_tables.filled(text, make_tables.RESULTS) == text, (
        "run python studies/make_tables.py"
    )
