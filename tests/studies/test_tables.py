import re
from pathlib import Path

import pytest

from autosplit.errors import ConfigError
from studies.benchmarks import result
from studies.tools import tables
from tests.docs.pages import anchor_of


@pytest.fixture
def results(tmp_path: Path) -> Path:
    bars = [result.at_most("error", 6.0, 5.0)]
    result.finish(
        "study",
        ["net", "a|b"],
        [["<x>", 1]],
        notes=["so *it* is"],
        bars=bars,
        file=tmp_path / "study.json",
    )
    return tmp_path


def page(*markers: str) -> str:
    return (
        "before\n"
        + "\n".join(f"<!-- results: {m} -->\nstale\n<!-- end -->\nbetween" for m in markers)
        + "\nafter"
    )


def test_a_table_stands_between_its_markers(results: Path) -> None:
    text = tables.filled(page("study"), results)
    assert text.startswith(
        "before\n<!-- results: study -->\n| net | a\\|b |\n|---|---|\n| \\<x> | 1 |\n\n"
        "- so \\*it\\* is"
    )
    assert "| error | 6 | at most 5 | MISSED |" in text
    assert text.endswith("\n<!-- end -->\nbetween\nafter")
    assert "stale" not in text


def test_filling_again_changes_nothing(results: Path) -> None:
    once = tables.filled(page("study", "study bars", "summary", "absent"), results)
    assert tables.filled(once, results) == once


def test_a_marker_can_ask_for_a_part(results: Path) -> None:
    table, bars = (tables.filled(page(f"study {part}"), results) for part in ("table", "bars"))
    assert ("| net |" in table, "MISSED" in table) == (True, False)
    assert ("| net |" in bars, "MISSED" in bars) == (False, True)


def test_the_summary_holds_the_bars_of_all(results: Path) -> None:
    assert "| study | error | 6 | at most 5 | MISSED |" in tables.filled(page("summary"), results)


def test_a_result_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    text = tables.filled(page("study", "summary", "link"), tmp_path)
    assert text.count("*Not measured yet.*") == 3


def test_a_marker_without_an_end_is_refused(results: Path) -> None:
    with pytest.raises(ConfigError, match="has no '<!-- end -->'"):
        tables.filled("<!-- results: study -->\nstale\n", results)


@pytest.mark.parametrize(
    "file", tables.PAGES, ids=lambda file: file.relative_to(tables.ROOT).as_posix()
)
def test_the_tables_of_the_pages_are_those_of_the_results(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert tables.filled(text, tables.RESULTS) == text, "run python -m studies.tools.tables"


def test_the_figures_of_the_readme_stand_in_the_section_that_the_row_links_to() -> None:
    page = tables.PAGES[0].read_text().split("\n## ")
    sections = {anchor_of(text.partition("\n")[0]): text for text in page}
    readme = (tables.ROOT / "README.md").read_text()
    rows = readme.partition("| measurement | result |")[2].partition("\n\n")[0].splitlines()[2:]
    assert len(rows) > 5
    for row in rows:
        measurement, figures = row.split("|")[1:3]
        section = sections[measurement.partition("results.md#")[2].rstrip(") ")]
        numbers = re.findall(r"\d+\.\d+|\d{2,}", figures)
        assert numbers, row
        assert all(re.search(rf"\b{re.escape(number)}", section) for number in numbers), row
