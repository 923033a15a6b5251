import re

import pytest

from studies.benchmarks import result
from studies.tools import tables


@pytest.fixture
def results(tmp_path):
    bars = [result.at_most("error", 6.0, 5.0)]
    table = ["net", "a|b"], [["<x>", 1]]
    result.finish("study", *table, notes=["so *it* is"], bars=bars, file=tmp_path / "study.json")
    return tmp_path


def page(*markers):
    return (
        "before\n"
        + "\n".join(f"<!-- results: {m} -->\nstale\n<!-- end -->\nbetween" for m in markers)
        + "\nafter"
    )


def test_a_table_stands_between_its_markers(results):
    text = tables.filled(page("study"), results)
    assert text.startswith(
        "before\n<!-- results: study -->\n| net | a\\|b |\n|---|---|\n| \\<x> | 1 |\n\n"
        "- so \\*it\\* is"
    )
    assert "- missed: error: 6, at most 5" in text
    assert text.endswith("\n<!-- end -->\nbetween\nafter")
    assert "stale" not in text


def test_the_summary_counts_targets_and_names_the_missed(results):
    text = tables.filled(page("summary"), results)
    assert "| study | 0 of 1 | error: 6, at most 5 |" in text


@pytest.mark.parametrize(
    "file", tables.PAGES, ids=lambda file: file.relative_to(tables.ROOT).as_posix()
)
def test_the_tables_of_the_pages_are_those_of_the_results(file):
    text = file.read_text(encoding="utf-8")
    assert tables.filled(text, tables.RESULTS) == text, "run python -m studies.tools.tables"


def test_figures_in_prose_stand_on_the_page_that_the_row_links_to():
    for file, head in (
        (tables.ROOT / "README.md", "| measurement |"),
        (tables.SUMMARY, "| question |"),
    ):
        rows = file.read_text().partition(head)[2].partition("\n\n")[0].splitlines()[2:]
        assert len(rows) > 5
        for row in rows:
            measurement, figures = row.split("|")[1:3]
            link = re.search(r"\]\(([^)#]*)", measurement)
            assert link, row
            text = (file.parent / link[1]).read_text()
            numbers = re.findall(r"\d+\.\d+|\d{2,}", figures)
            missing = [n for n in numbers if not re.search(rf"\b{re.escape(n)}", text)]
            assert not missing, row
