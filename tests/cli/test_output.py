import contextlib
import csv
import io
import json
import re
import sys

import pytest
from hypothesis import given

from autosplit import phases
from autosplit.cli import main, output
from autosplit.cli.output import PhaseLines
from autosplit.zoo import catalog
from tests import nets
from tests.strategies import documents


def test_a_table_shows_title_columns_and_rows(capsys):
    title = "two nets, in a line that is longer than the table"
    output.emit_table(title, ("net", "ms"), [("a", "1.5"), ("b [red]", "10")])
    shown = capsys.readouterr().out
    assert shown.splitlines() == [title, "net       ms", "a        1.5", "b [red]   10"]


def test_csv_has_the_tables_alone_and_any_encoding_will_do(capsys):
    sys.stdout.reconfigure(encoding="ascii")
    assert main(["zoo", "list", "-f", "csv"]) == 0
    out = capsys.readouterr().out
    columns, *rows = csv.reader(out.splitlines())
    assert columns == ["net", "inputs", "outputs", "nodes", "weights MB"]
    assert [row[0] for row in rows] == list(catalog.EVERY)
    output.emit_line("a … c")
    output.emit("csv", {}, "said of it")
    assert capsys.readouterr() == ("a \\u2026 c\n", "said of it\n")


class Terminal(io.StringIO):
    """Standard output that is a terminal."""

    def isatty(self):
        return True


@pytest.mark.parametrize("width", [24, 40, 80])
def test_a_terminal_shortens_texts_and_names_the_columns_without_room(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    columns = ("name", "ms", "a cell of many short words", "share %")
    with contextlib.redirect_stdout(Terminal()) as shown:
        output.emit_table("", columns, [("q" * 60, "12.5", "short words " * 4, "50")])
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown.getvalue())
    assert max(map(len, text.splitlines())) <= width
    # A number is never cut, and a row is one line.
    assert ("12.5" in text, "q…q" in text, text.count("12.5")) == (True, True, 1)
    hidden = {24: "a cell of many short words, share %"}.get(width)
    note = f"no room for: {hidden}; widen the terminal or give -f json"
    assert (note in " ".join(text.split())) == (width < 40)


@pytest.mark.parametrize(
    ("cells", "right"),
    [
        (["1", "22"], True), (["1.5", "-3"], True), (["50%", "1,000"], True), (["", "3"], True),
        (["1", "x"], False), (["1 to 2"], False), (["1e5"], False), ([], True),
    ],
)  # fmt: skip
def test_columns_of_numbers_stand_right(cells, right, capsys):
    output.emit_table("", ("c", "end"), [(cell, "|") for cell in ["100000", *cells]])
    assert capsys.readouterr().out.startswith("     c" if right else "c")


def test_a_long_line_is_broken_between_words_on_a_terminal_only(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    text = "the best-split takes 3 ms, and no_word_is_ever_broken_here"
    with contextlib.redirect_stdout(Terminal()) as shown:
        output.emit_line(text)
    lines = ["the best-split takes", "3 ms, and", "no_word_is_ever_broken_here"]
    assert shown.getvalue().splitlines() == lines
    output.emit_line(text)
    assert capsys.readouterr().out == f"{text}\n"


@given(documents())
def test_any_document_is_strict_json_that_says_the_same(capsys, document):
    output.emit_json(document)
    parsed = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert parsed == json.loads(json.dumps(document), parse_constant=lambda _: None)


@pytest.mark.parametrize(
    ("cell", "shown"),
    [("80.1 (70.8 to 93.5)", "80.1"), ("block1/conv2_relu_1", "block1/c…_relu_1"),
     ("日本" * 9, "日本日本…本日本"), ("short", "short")],
)  # fmt: skip
def test_a_time_loses_its_interval_and_a_name_its_middle(cell, shown, monkeypatch):
    monkeypatch.setenv("COLUMNS", "16")
    with contextlib.redirect_stdout(Terminal()) as printed:
        output.emit_table("", ("c",), [(cell,)])
    assert printed.getvalue().splitlines()[1].rstrip() == shown


def test_phases_are_shown_where_they_are_asked_for(save, capsys, monkeypatch):
    net = str(save(nets.net("g (float[2,3] x) => (float[2,3] y) { y = Exp(x) }")))

    def shown(*more):
        assert main(["inspect", net, *more]) == 0
        return capsys.readouterr().err

    assert shown() == ""
    lines = shown("--progress").splitlines()
    assert [line.split()[0] for line in lines] == ["importing", "lowering"]
    # A terminal shows them in one line that is erased.
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    on_terminal = shown()
    assert "lowering" in on_terminal
    assert "\n" not in on_terminal
    assert on_terminal.endswith("\r\x1b[K")


def test_a_phase_that_counts_is_printed_once_a_second(capsys, monkeypatch):
    seconds = iter([0.0, 0.0, 0.5, 1.5, 1.6])
    monkeypatch.setattr("autosplit.cli.output.time.monotonic", lambda: next(seconds))
    with phases.listening(PhaseLines()):
        for number in (1, 2, 3):
            phases.report(f"compiling kernels {number}/9")
        phases.report("profiling")
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["compiling kernels 1/9", "compiling kernels 3/9", "profiling"]


def test_a_phase_is_part_of_a_step_of_the_whole(capsys):
    with phases.listening(PhaseLines()):
        with phases.step("candidate 3 of 20"):
            phases.report("building")
        phases.report("profiling")
    assert capsys.readouterr().err.splitlines() == ["candidate 3 of 20: building", "profiling"]
