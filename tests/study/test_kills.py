import random
import signal
import subprocess
import sys
from pathlib import Path

import optuna
import pytest
from optuna.trial import FrozenTrial

from autosplit.study.conclude import best_trial
from autosplit.study.space import KEY
from autosplit.study.storage import connect, storage_url

KILLS = 20
STUDY = """
name = "k"
backend = "simulated"
stages = 4
[search]
trials = 40
converge = false
[simulated]
ops = 40
delay = 0.1
"""


def load(folder: Path) -> optuna.Study:
    return optuna.load_study(study_name="k", storage=connect(storage_url("k", str(folder / "k.db"))))


def trials(folder: Path) -> list[FrozenTrial]:
    try:
        return load(folder).trials
    except KeyError:  # killed before there was a study
        return []


def command(folder: Path) -> list[str]:
    (folder / "k.toml").write_text(STUDY)
    return [sys.executable, "-m", "autosplit", "run", str(folder / "k.toml"), "--storage", str(folder / "k.db")]


@pytest.mark.slow
def test_twenty_kills_lose_nothing_and_change_nothing(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
    subprocess.run(command(whole), check=True, capture_output=True)
    rng = random.Random(0)
    before: dict[int, object] = {}
    for _ in range(KILLS):
        process = subprocess.Popen(command(killed), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(rng.uniform(0.5, 4.0))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
        now = {t.number: (t.value, t.user_attrs[KEY]) for t in trials(killed) if t.state.name == "COMPLETE"}
        assert before.items() <= now.items()
        before = dict(now)
    subprocess.run(command(killed), check=True, capture_output=True)
    found, expected = load(killed), load(whole)
    assert {t.state.name for t in found.trials} == {"COMPLETE"}  # a killed trial is adopted, none is left running
    keys = [t.user_attrs[KEY] for t in found.trials]
    assert len(keys) == len(set(keys)) == 40
    assert sum(t.user_attrs.get("deaths", 0) for t in found.trials) <= KILLS
    assert keys == [t.user_attrs[KEY] for t in expected.trials]
    ends = [best_trial(study.trials, study.user_attrs) for study in (found, expected)]
    assert ends[0] is not None
    assert ends[1] is not None
    assert (ends[0][0].number, ends[0][1]) == (ends[1][0].number, ends[1][1])
