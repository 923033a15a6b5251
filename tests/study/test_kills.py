"""Studies of which a process is killed, and started again."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autosplit.report.documents.study_reader import find_study
from autosplit.study.record import RESULT, record_of
from tests.study import faults

STUDY = """
name = "k"
model = "{model}"
stages = 2
runtime = "onnxruntime"
[measure]
seconds = 1.0
[search]
trials = 2
converge = false
"""


@pytest.mark.slow
def test_twenty_kills_lose_nothing_and_change_nothing(tmp_path):
    result = faults.killed(tmp_path, kills=20, trials=40)
    assert result.lost == 0
    assert set(result.remains.states) <= {"COMPLETE", "FAIL"}  # none is left running
    assert (len(result.remains.keys), result.remains.measured_twice) == (40, 0)
    assert result.remains.repeated <= result.kills
    assert result.remains.best is not None
    assert result.same_end


@pytest.mark.integration
def test_a_kill_in_the_final_comparison_costs_that_comparison_alone(branches, tmp_path):
    (tmp_path / "k.toml").write_text(STUDY.format(model=branches.path))
    command = [sys.executable, "-m", "autosplit", "run", "k.toml", "--storage", "k.db"]
    killed = subprocess.Popen(command, cwd=tmp_path, text=True, stderr=subprocess.PIPE)
    assert killed.stderr is not None
    assert any("final comparison" in line for line in killed.stderr)
    killed.kill()
    killed.communicate()
    before = trials_and_verdict(tmp_path)
    assert [state for _, state in before[0]] == ["COMPLETE"] * 2
    assert before[1] is None
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    trials, verdict = trials_and_verdict(tmp_path)
    assert trials == before[0]
    assert verdict is not None


def trials_and_verdict(folder: Path) -> tuple[list[tuple[str, str]], Any]:
    """The split and the state of each trial."""
    with find_study(str(folder / "k.db")).open() as study:
        trials = [(record_of(trial).key, trial.state.name) for trial in study.trials]
        return trials, study.user_attrs[RESULT]["verdict"]
