"""A study of a runtime of ONNX submodels: the file, a run, the export of its best."""

import json

import pytest

import autosplit
from autosplit.cli import main
from autosplit.errors import ConfigError
from autosplit.hardware.measurement.parity import compare
from autosplit.hardware.runtimes.registry import ONNXRUNTIME, OPENVINO

STUDY = """
zoo = "branches"
stages = 2
runtime = "{runtime}"
export = "{folder}"
[search]
trials = 2
[measure]
seconds = 0.2
items = 4
share = 0.5
"""


@pytest.mark.integration
@pytest.mark.parametrize("runtime", [ONNXRUNTIME, OPENVINO])
def test_a_study_runs_is_told_apart_and_exports(
    runtime, branches, tmp_path, monkeypatch, capsys, as_json
):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "s.toml"
    file.write_text(STUDY.format(folder=tmp_path / "out", runtime=runtime))
    shown = as_json("run", file)
    assert [t["state"] for t in shown["trials"]][:1] == ["COMPLETE"]
    names = {baseline["name"] for baseline in shown["baselines"]}
    assert {"onnxruntime, 1 thread", "openvino, 1 thread"} <= names
    assert not any(name.startswith("tvm") for name in names)
    manifest = json.loads((tmp_path / "out" / "split.json").read_text(encoding="utf-8"))
    assert {s["runtime"] for s in manifest["stages"]} == {runtime}
    items = branches.items(1)
    with autosplit.load(tmp_path / "out") as pipeline:
        assert compare(pipeline.run(items), branches.expected(items)).equal
    file.write_text(STUDY.format(folder=tmp_path / "out", runtime="tvm"))
    assert main(["run", str(file)]) == ConfigError.exit_code
    assert "runtime was" in capsys.readouterr().err


@pytest.mark.integration
def test_a_study_of_all_runtimes_resumes_and_exports_the_runtime_of_each_stage(
    branches, tmp_path, monkeypatch, as_json
):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "s.toml"
    text = STUDY.format(folder=tmp_path / "out", runtime="auto")
    file.write_text(text.replace("trials = 2", "trials = 5"))
    shown = as_json("run", file)
    tried = [(t["number"], t["state"], t["cuts"], t["runtimes"]) for t in shown["trials"]]
    assert len({str(t[2:]) for t in tried}) == len(tried) == 5
    best = shown["best"]["runtimes"]
    manifest = json.loads((tmp_path / "out" / "split.json").read_text(encoding="utf-8"))
    assert [s["runtime"] for s in manifest["stages"]] == best
    assert as_json("verify", tmp_path / "out")["equal"]
    # Not the times: a final comparison that was disturbed is measured again.
    again = as_json("run", file)["trials"]
    assert [(t["number"], t["state"], t["cuts"], t["runtimes"]) for t in again] == tried
