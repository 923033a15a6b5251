"""Stored studies of a real net are exported where their cores are not."""

import json
import os
from pathlib import Path

import pytest

from autosplit.cli import main

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="this process has one core"),
]
STUDY = """
zoo = "branches"
runtime = "tvm"
{asked}
[search]
trials = 1
[measure]
seconds = 0.05
items = 4
latency_items = 1
"""


@pytest.fixture
def one_core():
    """Leaves this process, and those that it starts, the last of its cores when it is called."""
    cores = os.sched_getaffinity(0)
    yield sorted(cores)
    os.sched_setaffinity(0, cores)


@pytest.mark.parametrize("asked", ["stages = 2", "cores = 2"])
def test_a_study_is_exported_on_a_machine_with_fewer_cores(
    asked, one_core, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    Path("net.toml").write_text(STUDY.format(asked=asked))
    assert main(["run", "net.toml"]) == 0
    os.sched_setaffinity(0, one_core[-1:])
    assert main(["export", "net.toml", "-o", "out", "--no-onnx"]) == 0, capsys.readouterr().err
    stages = json.loads(Path("out/split.json").read_text())["stages"]
    # Any core of the study, of which this process has but the last one.
    named = {replica["device"] for stage in stages for replica in stage["replicas"]}
    assert named & {f"cores:{one_core[0]}", f"cores:{one_core[0]},{one_core[1]}"}
    assert not list(Path("out").glob("*.onnx"))
