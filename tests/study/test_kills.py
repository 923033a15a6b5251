"""Studies of which a process is killed or interrupted, and started again."""

import contextlib
import random
import signal
import subprocess

import pytest

from tests.study.processes import Runs


def kill(process):
    process.kill()
    process.communicate()


@pytest.mark.slow
def test_twenty_kills_lose_nothing_and_change_nothing(tmp_path):
    whole, parted = (Runs(tmp_path / name, 40) for name in ("whole", "parted"))
    whole.run()
    rng, kills, complete = random.Random(0), 0, []
    for _ in range(20):
        process = parted.start(0.1)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=rng.uniform(0.5, 4.0))
        kills += process.poll() is None
        kill(process)
        if parted.trials():
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
def test_a_kill_in_the_final_comparison_costs_that_comparison_alone(tmp_path):
    study = Runs(tmp_path, 2)
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
    study = Runs(tmp_path, 5)
    process = study.started_until("trial 1:")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.splitlines()[-1].startswith("autosplit: interrupted; the study is saved")
    assert "Traceback" not in errors
    states = [state for state, *_ in study.stored()[0]]
    assert states[:2] == ["COMPLETE", "COMPLETE"]
    assert "RUNNING" not in states
