import json
from pathlib import Path
from typing import Any

import outcome
import pytest

from autosplit.errors import ConfigError
from autosplit.hardware.results import Spread

ROWS = [("squeezenet", 3.5), ("resnet50", 38)]


def finish(file: Path | None = None, *bars: outcome.Bar) -> int:
    return outcome.finish("link", ["net", "ms"], ROWS, notes=["a note"], bars=bars, file=file)


def test_what_is_found_is_printed_with_bars_and_machine(capsys: pytest.CaptureFixture[str]) -> None:
    finish(None, outcome.at_least("share", 0.5, 0.95))
    printed = capsys.readouterr().out
    assert all(
        text in printed for text in ("squeezenet", "a note", "at least 0.95", "MISSED", "machine ", "apache-tvm")
    )


def test_a_missed_bar_is_the_exit_code() -> None:
    held, missed = outcome.at_most("error %", 5.0, 5.0), outcome.at_most("error %", 5.1, 5.0)
    assert (finish(), finish(None, held), finish(None, held, missed)) == (0, 0, 1)


def test_what_is_no_number_holds_no_bar() -> None:
    nothing = float("nan")
    assert not outcome.at_least("x", nothing, 1.0).holds
    assert not outcome.at_most("x", nothing, 1.0).holds


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    finish(tmp_path / "new" / "link.json", outcome.at_least("share", 0.5, 0.95))
    found = outcome.read(tmp_path / "new" / "link.json")
    assert (found.name, found.columns, found.notes) == ("link", ("net", "ms"), ("a note",))
    assert found.rows == (("squeezenet", "3.5"), ("resnet50", "38"))
    assert not found.holds
    assert found.environment["machine"]
    assert found.command.startswith("python studies/")


@pytest.mark.parametrize(
    ("ours", "theirs", "result"),
    [((1, 2), (3, 4), "gain"), ((3, 4), (1, 2), "loss"), ((1, 3), (3, 4), "tie"), ((1, 9), (3, 4), "tie")],
)
def test_periods_whose_intervals_overlap_are_a_tie(ours: Any, theirs: Any, result: str) -> None:
    assert outcome.compared(Spread(2, *ours), Spread(3, *theirs)) == result


def test_a_command_tells_no_folder_of_the_machine() -> None:
    argv = ["/home/me/autosplit/studies/bench_planner.py", "/home/me/workloads", "--wide", "-o", "out/x.json"]
    assert outcome.command_line(argv) == "python studies/bench_planner.py workloads --wide"


@pytest.mark.parametrize("damage", ["{", "[]", "{}", "null", '{"rows": [], "bars": [{}], "columns": [], "notes": []}'])
def test_a_file_that_is_no_result_is_refused(damage: str, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text(damage)
    with pytest.raises(ConfigError, match=r"x\.json' is no result of a benchmark .*; make it anew"):
        outcome.read(file)


def test_a_row_of_another_width_is_refused(tmp_path: Path) -> None:
    finish(tmp_path / "x.json")
    document = json.loads((tmp_path / "x.json").read_text())
    (tmp_path / "x.json").write_text(json.dumps({**document, "rows": [["one"]]}))
    with pytest.raises(ConfigError, match="not as wide as its 2 columns"):
        outcome.read(tmp_path / "x.json")
