from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from autosplit.errors import ConfigError
from autosplit.hardware.measurement.results import Spread
from studies.benchmarks import result

ROWS = [("squeezenet", 3.5), ("resnet50", 38)]


def finish(file: Path | None = None, *bars: result.Bar) -> int:
    return result.finish("link", ["net", "ms"], ROWS, notes=["a note"], bars=bars, file=file)


def test_a_missed_bar_is_the_exit_code() -> None:
    reached, missed = result.at_most("error %", 5.0, 5.0), result.at_most("error %", 5.1, 5.0)
    assert (finish(), finish(None, reached), finish(None, reached, missed)) == (0, 0, 1)


def test_a_failure_loses_no_other_measurement(capsys: pytest.CaptureFixture[str]) -> None:
    measured, bar = result.each(["first", "", "last"], lambda name: name[0])
    assert measured == {"first": "f", "last": "l"}
    assert not bar.holds
    assert "IndexError" in capsys.readouterr().err


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    finish(tmp_path / "new" / "link.json", result.at_least("share", 0.5, 0.95))
    written = result.read(tmp_path / "new" / "link.json")
    assert (written.name, written.columns, written.notes) == ("link", ("net", "ms"), ("a note",))
    assert written.rows == (("squeezenet", "3.5"), ("resnet50", "38"))
    assert written.bars[0].cells == ("share", "0.5", "at least 0.95", "MISSED")
    assert not written.holds
    assert written.environment["machine"]
    assert written.command.startswith("python -m studies.benchmarks")


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ((1, 2), (3, 4), "gain"),
        ((3, 4), (1, 2), "loss"),
        ((1, 3), (3, 4), "tie"),
        ((1, 9), (3, 4), "tie"),
    ],
)
def test_periods_whose_intervals_overlap_are_a_tie(ours: Any, theirs: Any, expected: str) -> None:
    assert result.compared(Spread(2, *ours), Spread(3, *theirs)) == expected


def test_a_command_tells_no_folder_of_the_machine() -> None:
    argv = [
        "/home/me/autosplit/studies/benchmarks/planner.py",
        "/home/me/workloads",
        "--wide",
        "-o",
        "out/x.json",
    ]
    assert result.command_line(argv) == "python -m studies.benchmarks.planner workloads --wide"


@pytest.mark.parametrize(
    "damage", ["{", "[]", "{}", "null", '{"rows": [], "bars": [{}], "columns": [], "notes": []}']
)
def test_a_file_that_is_no_result_is_refused(damage: str, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text(damage)
    with pytest.raises(ConfigError, match=r"x\.json' is no result of a benchmark .*; make it anew"):
        result.read(file)


@pytest.mark.parametrize(
    ("spread", "text"),
    [
        (Spread(1.0, 0.996, 1.005), "1.00 (1.00 to 1.00)"),
        (Spread(12.345, 12.0, 13.0), "12.35 (12.00 to 13.00)"),
        (Spread(0.99, 0.98, 1.01), "0.9900 (0.9800 to 1.0100)"),
        (Spread(0.0, 0.0, 0.0), "0.0000 (0.0000 to 0.0000)"),
    ],
)
def test_a_period_below_a_millisecond_has_more_digits(spread: Spread, text: str) -> None:
    assert result.shown(spread) == text


@pytest.mark.parametrize(
    ("value", "least", "most"),
    [
        (1.0, True, True), (1.001, True, False), (0.999, False, True),
        (float("nan"), False, False),
    ],
)  # fmt: skip
def test_a_bar_is_reached_by_its_own_value(value: float, least: bool, most: bool) -> None:
    assert result.at_least("x", value, 1.0).holds is least
    assert result.at_most("x", value, 1.0).holds is most


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["studies/benchmarks/__main__.py"], "python -m studies.benchmarks"),
        (["link.py", "-o", "x.json", "net"], "python -m studies.benchmarks.link net"),
        (["link.py", "net", "-o"], "python -m studies.benchmarks.link net"),
        (["link.py", "two words"], "python -m studies.benchmarks.link 'two words'"),
        (["link.py", "rel/folder"], "python -m studies.benchmarks.link rel/folder"),
    ],
)
def test_a_command_is_told_as_one_types_it(argv: list[str], text: str) -> None:
    assert result.command_line(argv) == text


def test_the_line_of_a_result_names_what_matters_and_leaves_out_the_rest() -> None:
    where = {"optuna": "5.0", "secret": "x", "machine": "m", "target": "llvm"}
    line = result.made("python x", "2030-01-31", where)
    assert line == "python x, 2030-01-31, machine m, optuna 5.0"
    assert datetime.fromisoformat(result.today())
