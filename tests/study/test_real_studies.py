"""Studies that measure real stages: the file, a run, the export of its best."""

import json
import os
from pathlib import Path

import pytest

from autosplit.cli import main
from tests.hardware.test_batches import loaded

pytestmark = pytest.mark.integration
STUDY = "{}\n{}\n[search]\ntrials = {}\n[measure]\nseconds = 0.1\nitems = 4\nshare = 0.5\n"


@pytest.fixture
def study(tmp_path, monkeypatch):
    """Write a study file in the working folder, of the zoo's branches unless it says otherwise."""
    monkeypatch.chdir(tmp_path)

    def write(trials, asked, model='zoo = "branches"'):
        Path("s.toml").write_text(STUDY.format(model, asked, trials))
        return "s.toml"

    return write


def exported():
    return json.loads(Path("out/split.json").read_text(encoding="utf-8"))


def test_a_study_of_all_runtimes_resumes_and_exports_the_runtime_of_each_stage(study, as_json):
    def tried(shown):
        # Not the times: a final comparison that was disturbed is measured again.
        return [(t["number"], t["state"], t["cuts"], t["runtimes"]) for t in shown["trials"]]

    shown = as_json("run", study(5, 'stages = 2\nruntime = "auto"\nexport = "out"'))
    assert len({str(t[2:]) for t in tried(shown)}) == len(shown["trials"]) == 5
    assert [s["runtime"] for s in exported()["stages"]] == shown["best"]["runtimes"]
    assert as_json("verify", "out")["equal"]
    assert tried(as_json("run", "s.toml")) == tried(shown)


def test_a_study_of_a_batch_exports_it(save, study, as_json):
    loaded(save)
    study(2, 'cores = 1\nruntime = "onnxruntime"', 'model = "net.onnx"')
    shown = as_json("run", "s.toml", "--batch", "4")
    assert {trial["batch"] for trial in shown["trials"]} == {4}
    names = [baseline["name"] for baseline in shown["baselines"]]
    assert any(name.endswith("batch 4") for name in names)
    assert not any(name.startswith("tvm") for name in names)
    for command in ("export s.toml -o out", "verify out", "bench out --seconds 0.2"):
        assert main(command.split()) == 0
    assert exported()["batch"] in (1, 4)


@pytest.fixture
def cores():
    """The cores of this process, which has them again afterwards."""
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        pytest.skip("this process has one core")
    yield sorted(cores)
    os.sched_setaffinity(0, cores)


@pytest.mark.parametrize("asked", ["stages = 2", "cores = 2"])
def test_a_study_is_exported_on_a_machine_with_fewer_cores(asked, cores, study, capsys):
    assert main(["run", study(1, f'{asked}\nruntime = "tvm"')]) == 0
    os.sched_setaffinity(0, cores[-1:])
    assert main(["export", "s.toml", "-o", "out", "--no-onnx"]) == 0, capsys.readouterr().err
    # Any core of the study, of which this process has but the last one.
    named = {r["device"] for stage in exported()["stages"] for r in stage["replicas"]}
    assert named & {f"cores:{cores[0]}", f"cores:{cores[0]},{cores[1]}"}
    assert not list(Path("out").glob("*.onnx"))
