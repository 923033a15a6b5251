import re

import pytest

from studies.benchmarks import result
from studies.tools import tables

ROWS = [{"net": "squeezenet", "ms": 3.5}, {"net": "resnet50", "ms": 38}]


def finish(file=None, *bars):
    return result.finish("link", ROWS, notes=["a note"], bars=bars, file=file)


def test_a_missed_bar_is_the_exit_code():
    reached, missed = result.at_most("error %", 5.0, 5.0), result.at_most("error %", 5.1, 5.0)
    assert (finish(), finish(None, reached), finish(None, reached, missed)) == (0, 0, 1)


def test_a_failure_loses_no_other_measurement(capsys):
    measured, bar = result.each(["first", "", "last"], lambda name: name[0])
    assert measured == {"first": "f", "last": "l"}
    assert not bar.holds
    assert "IndexError" in capsys.readouterr().err


def test_what_is_written_is_read_again(tmp_path):
    finish(tmp_path / "new" / "link.json", result.at_least("share", 0.5, 0.95))
    written = result.read(tmp_path / "new" / "link.json")
    assert (written.name, written.columns, written.notes) == ("link", ("net", "ms"), ("a note",))
    assert written.rows == (("squeezenet", "3.50"), ("resnet50", "38"))
    assert written.outcome == ["missed: share: 0.5, at least 0.95"]
    assert not written.holds
    assert written.environment["machine"]
    assert written.command.startswith("python -m studies.benchmarks")


def test_a_bar_is_reached_by_its_own_value():
    values = (1.0, 1.001, 0.999, float("nan"))
    assert [result.at_least("x", v, 1.0).holds for v in values] == [True, True, False, False]
    assert [result.at_most("x", v, 1.0).holds for v in values] == [True, False, True, False]


@pytest.mark.parametrize(
    ("words", "text"),
    [(["studies/benchmarks/__main__.py"], ""), (["link.py", "-o", "x.json", "net"], ".link net"),
     (["link.py", "net", "-o"], ".link net"), (["link.py", "two words"], ".link 'two words'"),
     (["link.py", "rel/folder"], ".link rel/folder")],
)  # fmt: skip
def test_a_command_is_told_as_one_types_it(words, text):
    assert result.command_line(words) == f"python -m studies.benchmarks{text}"


@pytest.fixture
def results(tmp_path):
    bars = [result.at_most("error", 6.0, 5.0)]
    rows = [{"net": "<x>", "a|b": 1}]
    result.finish("study", rows, notes=["so *it* is"], bars=bars, file=tmp_path / "study.json")
    return tmp_path


def page(name):
    return f"before\n<!-- results: {name} -->\nstale\n<!-- end -->\nbetween\nafter"


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


@pytest.mark.parametrize("file", tables.PAGES, ids=lambda f: f.relative_to(tables.ROOT).as_posix())
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
