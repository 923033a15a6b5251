"""Studies of which a process is killed or interrupted, and started again."""

import contextlib
import random
import signal
import subprocess
import sys
import time

import pytest

from autosplit.report.documents.study_reader import find_study
from autosplit.study.record import RESULT, record_of
from autosplit.study.results import best_of_study

STUDY = 'name = "k"\nmodel = "net.onnx"\nstages = 3\n[search]\ntrials = {}\n{}\n'


class Killable:
    """A study on simulated hardware, run by processes."""

    def __init__(self, folder, trials, more="converge = false", delay=0.3):
        folder.mkdir(exist_ok=True)
        (folder / "k.toml").write_text(STUDY.format(trials, more))
        self.file = folder / "k.db"
        run = ["run", str(folder / "k.toml"), "--storage", str(self.file)]
        self._command = [sys.executable, "-m", "studies.simulation", "ops=40", f"delay={delay}"]
        self._command += run

    def start(self):
        pipe = subprocess.PIPE
        return subprocess.Popen(self._command, text=True, stdout=subprocess.DEVNULL, stderr=pipe)

    def run(self):
        subprocess.run(self._command, check=True, capture_output=True)

    def started_until(self, line):
        """A process that has printed a line that begins so."""
        process = self.start()
        assert any(printed.startswith(line) for printed in process.stderr), "it ended before"
        return process

    def stored(self):
        """State, candidate and value of each trial; the best candidate; and the verdict."""
        with find_study(str(self.file)).open() as study:
            trials = [(t.state.name, record_of(t).key, t.value) for t in study.trials]
            best = best_of_study(study)
            result = study.user_attrs.get(RESULT, {})
            return trials, best and best.record.key, result.get("verdict")


def kill(process):
    process.kill()
    process.communicate()


@pytest.mark.slow
def test_twenty_kills_lose_nothing_and_change_nothing(tmp_path):
    whole, parted = (Killable(tmp_path / name, 40, delay=0.1) for name in ("whole", "parted"))
    whole.run()
    rng, kills, complete = random.Random(0), 0, []
    for _ in range(20):
        process = parted.start()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=rng.uniform(0.5, 4.0))
        kills += process.poll() is None
        kill(process)
        if parted.file.exists():
            before, complete = complete, [t for t in parted.stored()[0] if t[0] == "COMPLETE"]
            assert complete[: len(before)] == before
    parted.run()
    trials, best, _ = parted.stored()
    complete = [trial for trial in trials if trial[0] == "COMPLETE"]
    assert {state for state, *_ in trials} <= {"COMPLETE", "FAIL"}  # none is left running
    assert len(trials) - len(complete) <= kills
    assert len({key for _, key, _ in complete}) == 40
    assert (complete, best) == whole.stored()[:2]


@pytest.mark.integration
def test_a_kill_in_the_third_trial_loses_that_trial_alone(tmp_path):
    study = Killable(tmp_path, 4, 'sampler = "random"', delay=0.5)
    killed = study.started_until("trial 1:")
    while not any(key for _, key, _ in study.stored()[0][2:]):
        time.sleep(0.02)  # until it has chosen its candidate
    kill(killed)
    states = [state for state, *_ in study.stored()[0]]
    assert states == ["COMPLETE", "COMPLETE", "RUNNING"]
    study.run()
    trials, *_ = study.stored()
    assert [state for state, *_ in trials] == [*["COMPLETE"] * 2, "FAIL", *["COMPLETE"] * 2]
    assert trials[2][1] == trials[3][1]
    assert len({key for _, key, _ in trials}) == 4


@pytest.mark.integration
def test_a_kill_in_the_final_comparison_costs_that_comparison_alone(tmp_path):
    study = Killable(tmp_path, 2)
    kill(study.started_until("final comparison"))
    before, _, no_verdict = study.stored()
    assert [state for state, *_ in before] == ["COMPLETE"] * 2
    assert no_verdict is None
    study.run()
    trials, _, verdict = study.stored()
    assert trials == before
    assert verdict is not None


@pytest.mark.integration
def test_ctrl_c_exits_130_with_the_study_whole(tmp_path):
    study = Killable(tmp_path, 5)
    process = study.started_until("trial 1:")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.splitlines()[-1].startswith("autosplit: interrupted; the study is saved")
    assert "Traceback" not in errors
    states = [state for state, *_ in study.stored()[0]]
    assert states[:2] == ["COMPLETE", "COMPLETE"]
    assert "RUNNING" not in states
