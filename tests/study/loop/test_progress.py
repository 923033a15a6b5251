"""What a run shows: a table that changes in place on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from autosplit.study.progress import Lines, LiveTable, Progress, Status, duration

pty = pytest.importorskip("pty")

STUDY = """
model = "net.onnx"
stages = 3
[search]
trials = 14
timeout = 600
converge = false
"""
STANDING = r"14 of 14 trials, best .* ms, predicted bound .* ms by the.*, about \d+ (s|min) left.*"
ESCAPE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")


def run(folder: Path, errors: int) -> str:
    """Run the study with its standard error at a file descriptor; returns its standard output."""
    (folder / "sim.toml").write_text(STUDY, encoding="utf-8")
    command = [sys.executable, "-m", "studies.simulation", "delay=0.02", "run", "sim.toml"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "160", "LINES": "40"}
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=errors
    ) as process:
        assert process.stdout is not None
        shown = process.stdout.read().decode()
    assert process.returncode == 0
    return shown


def screen(text: str) -> list[str]:
    """The lines of a terminal after text, line ends, and codes for cursor up and erase line."""
    lines, row, at = [""], 0, 0
    for piece in re.split(r"(\x1b\[[0-9;?]*[A-Za-z]|\r|\n)", text):
        code = ESCAPE.fullmatch(piece)
        if code and code[2] == "A":
            row -= int(code[1] or 1)
        elif code and code[2] == "K":
            lines[row] = ""
        elif piece == "\r":
            at = 0
        elif piece == "\n":
            row, at = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        elif not code:
            lines[row] = lines[row][:at] + piece + lines[row][at + len(piece) :]
            at += len(piece)
    return lines


@pytest.mark.integration
def test_a_terminal_shows_one_table_with_the_best_so_far_the_bound_and_the_time_left(
    tmp_path: Path,
) -> None:
    ours, theirs = pty.openpty()
    read = subprocess.Popen(
        [sys.executable, "-c", COPY, str(ours)], pass_fds=[ours], stdout=subprocess.PIPE
    )
    os.close(ours)
    run(tmp_path, theirs)
    os.close(theirs)
    lines = [line.rstrip() for line in screen(read.communicate()[0].decode()) if line.strip()]
    assert [line.count("trial ┃ period") for line in lines].count(1) == 1
    rows = [re.match(r"│ (\d+) ", line) for line in lines]
    assert [int(row[1]) for row in rows if row] == list(range(2, 14))
    end = lines.index("next:")
    assert re.fullmatch(STANDING, lines[end - 2])
    assert lines[end - 1].startswith("final comparison: ")


COPY = """
import os, sys
try:
    while chunk := os.read(int(sys.argv[1]), 65536):
        sys.stdout.buffer.write(chunk)
except OSError:  # so a terminal says that nobody writes to it any more
    pass
"""


@pytest.mark.integration
def test_elsewhere_every_trial_is_a_plain_line(tmp_path: Path) -> None:
    with (tmp_path / "errors").open("w+b") as file:
        run(tmp_path, file.fileno())
        file.seek(0)
        lines = file.read().decode().splitlines()
    trials = [line for line in lines if line.startswith("trial ")]
    assert len(trials) == 14
    assert re.search(STANDING, trials[-1])
    assert "\x1b" not in "".join(lines)


FIRST = Status(0, 2.0, (1.0, 2.0), None, 2.0, 1.5, 1, 9, 89.4)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (89.4, "89 s"),
        (90, "2 min"),
        (5399, "90 min"),
        (5400, "1.5 h"),
        (86_400, "24.0 h"),
    ],
)
def test_times_are_told_in_the_unit_one_would_say(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("status", "line"),
    [
        (
            FIRST,
            "trial 0: 2 ms, stages 1 ms, 2 ms; "
            "1 of 9 trials, best 2 ms, predicted bound 1.5 ms by the profile, about 89 s left",
        ),
        (
            Status(3, None, (), "no room", None, None, 4, 9, None),
            "trial 3: failed: no room; 4 of 9 trials",
        ),
        (
            Status(3, None, (), "no room", 2.0, None, 4, 9, 0.0),
            "trial 3: failed: no room; 4 of 9 trials, best 2 ms, about 0 s left",
        ),
    ],
)
def test_a_line_tells_the_trial_and_where_the_study_stands(
    capsys: pytest.CaptureFixture[str], status: Status, line: str
) -> None:
    Lines().trial(status)
    assert capsys.readouterr() == ("", line + "\n")


def shown(table: LiveTable) -> list[str]:
    from rich.console import Console

    console = Console(width=90)
    with console.capture() as captured:
        console.print(table.view())
    return captured.get().splitlines()


def test_the_table_keeps_the_last_trials_and_the_last_notes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = LiveTable()
    monkeypatch.setattr(table, "show", lambda: None)
    for text in "abcd":
        table.note(f"note {text}")
    assert shown(table) == ["note b", "note c", "note d"]
    for number in range(LiveTable.TRIALS + 2):
        failed = number == 5
        table.trial(
            replace(
                FIRST,
                number=number,
                period_ms=None if failed else 2.0,
                error="no [b]" if failed else None,
            )
        )
    table.note("after")
    lines = shown(table)
    rows = [
        [cell.strip() for cell in line.strip("│").split("│")]
        for line in lines
        if line.startswith("│")
    ]
    assert [int(row[0]) for row in rows] == list(range(2, LiveTable.TRIALS + 2))
    assert rows[3] == ["5", "failed", "no [b]"]
    assert rows[4] == ["6", "2 ms", "1 ms, 2 ms"]
    assert lines[-1] == "after"
    assert lines[-2].startswith("1 of 9 trials, best 2 ms")


def test_a_step_that_takes_long_tells_for_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    table = LiveTable()
    monkeypatch.setattr(table, "show", lambda: None)
    now = time.monotonic()
    table.note("profiling")
    monkeypatch.setattr(time, "monotonic", lambda: now + 100)
    assert shown(table) == ["profiling, for 2 min"]
    table.note("measuring")
    assert shown(table) == ["profiling", "measuring"]


def test_the_best_so_far_stands_out() -> None:
    table = LiveTable()
    table.trials = [
        FIRST,
        replace(FIRST, number=1, period_ms=3.0),
        replace(FIRST, number=2, period_ms=None),
    ]
    rows = table.view().renderables[0].rows  # type: ignore[union-attr]
    assert [row.style for row in rows] == ["bold", None, None]


def test_close_is_idempotent() -> None:
    for progress in (LiveTable(), Lines(), Progress()):
        progress.close()
        progress.close()
