from __future__ import annotations

import json
import sys

import pytest

from autosplit.cli import output


def test_a_table_shows_title_columns_and_rows(capsys: pytest.CaptureFixture[str]) -> None:
    title = "two nets, in a line that is longer than the table"
    output.emit_table(title, ("net", "ms"), [("a", "1.5"), ("b [red]", "10")])
    shown = capsys.readouterr().out
    assert shown.startswith(f"{title}\n┏")
    assert [line.strip("│|").split()[-1] for line in shown.splitlines() if "│" in line] == ["1.5", "10"]
    assert "b [red]" in shown


def test_without_rich_the_same_cells_stand_in_plain_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    output.emit_table("two nets", ("net", "ms", ""), [("a", "1.5", "x"), ("long\x1b[1m", 10, "")])
    assert capsys.readouterr().out.splitlines() == ["two nets", "net        ms", "a         1.5  x", "long?[1m   10"]
    output.emit_table("", ("net",), [])
    assert capsys.readouterr().out == "net\n"


def test_numbers_that_json_lacks_become_null(capsys: pytest.CaptureFixture[str]) -> None:
    output.emit_json({"a": [float("nan"), float("inf"), 1.5], "b": (None, True)})
    assert json.loads(capsys.readouterr().out) == {"a": [None, None, 1.5], "b": [None, True]}
