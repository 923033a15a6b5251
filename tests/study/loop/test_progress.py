"""What a run shows: a line on standard error for each step and each trial."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from autosplit.units import duration

STUDY = """
model = "net.onnx"
stages = 3
[search]
trials = 3
converge = false
"""
STANDING = r"; 3 of 3 trials, best .* ms, predicted bound .* ms by the profile.*, about 0 s left"


@pytest.mark.integration
def test_every_trial_is_a_line_with_the_best_so_far_and_the_time_left(tmp_path: Path) -> None:
    (tmp_path / "sim.toml").write_text(STUDY, encoding="utf-8")
    command = [sys.executable, "-m", "studies.simulation", "run", "sim.toml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    lines = done.stderr.splitlines()
    trials = [line for line in lines if line.startswith("trial ")]
    assert len(trials) == 3
    assert re.search(STANDING, trials[-1])
    assert lines[lines.index("next:") - 1].startswith("final comparison: ")


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
