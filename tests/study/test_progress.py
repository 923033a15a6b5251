"""What a run shows while it lasts: a table that changes in place on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pty = pytest.importorskip("pty")

STUDY = """
backend = "simulated"
stages = 3
[search]
trials = 14
timeout = 600
converge = false
[simulated]
delay = 0.02
"""
STANDING = r"14 of 14 trials, best \d+\.\d{3} ms, bound of the profile \d+\.\d{3} ms, about \d+ s left"
ESCAPE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")


def run(folder: Path, errors: int) -> str:
    """Run the study with its standard error at a file descriptor; returns its standard output."""
    (folder / "sim.toml").write_text(STUDY, encoding="utf-8")
    command = [sys.executable, "-m", "autosplit", "run", "sim.toml"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=errors) as process:
        assert process.stdout is not None
        shown = process.stdout.read().decode()
    assert process.returncode == 0
    return shown


def screen(text: str) -> list[str]:
    """The lines a terminal ends with: text, line ends, and the codes for cursor up and erase line."""
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


def test_a_terminal_shows_one_table_with_the_best_so_far_the_bound_and_the_time_left(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    read = subprocess.Popen([sys.executable, "-c", COPY, str(ours)], pass_fds=[ours], stdout=subprocess.PIPE)
    os.close(ours)
    run(tmp_path, theirs)
    os.close(theirs)
    lines = [line.rstrip() for line in screen(read.communicate()[0].decode()) if line.strip()]
    assert [line.count("trial ┃ period ms") for line in lines].count(1) == 1
    assert [int(m[1]) for line in lines if (m := re.match(r"│ (\d+) ", line))] == list(range(2, 14))
    assert re.fullmatch(STANDING, lines[-2])
    assert lines[-1].startswith("comparing the best ")


COPY = """
import os, sys
try:
    while chunk := os.read(int(sys.argv[1]), 65536):
        sys.stdout.buffer.write(chunk)
except OSError:  # so a terminal says that nobody writes to it any more
    pass
"""


def test_elsewhere_every_trial_is_a_plain_line(tmp_path: Path) -> None:
    with (tmp_path / "errors").open("w+b") as file:
        run(tmp_path, file.fileno())
        file.seek(0)
        lines = file.read().decode().splitlines()
    trials = [line for line in lines if line.startswith("trial ")]
    assert len(trials) == 14
    assert re.search(STANDING, trials[-1])
    assert "\x1b" not in "".join(lines)
