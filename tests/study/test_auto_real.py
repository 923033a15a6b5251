"""Any number of stages on a real net, from study file to export."""

import json
from pathlib import Path

import pytest

import autosplit
from autosplit import api
from autosplit.cli import main
from autosplit.zoo import catalog

pytest.importorskip("onnxruntime")
STUDY = """
zoo = "branches"
runtime = "tvm"
stages = "auto"
devices = ["{0}", "{1}"]
[search]
trials = 3
[measure]
seconds = 0.05
items = 4
latency_items = 1
"""


@pytest.mark.slow
def test_a_trial_of_a_single_stage_is_measured_and_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.toml").write_text(STUDY.format(*map(str, api.device.along(2))))
    assert main(["run", "net.toml", "-f", "json"]) == 0
    trials = json.loads(capsys.readouterr().out)["trials"]
    whole = next(t for t in trials if t["cuts"] == [])
    assert len(whole["stage_ms"]) == 1
    assert main(["export", "net.db", "-o", "out", "--trial", str(whole["number"])]) == 0
    written = json.loads(Path("out/split.json").read_text())
    (stage,) = written["stages"]
    assert stage["device"] in map(str, api.device.along(2))
    with autosplit.load("out") as pipeline:
        model = api.load_model(catalog.cached("branches"))
        assert len(pipeline.run(model.items(2))) == 2
    assert main(["report", "net.db", "-o", "net.html"]) == 0
