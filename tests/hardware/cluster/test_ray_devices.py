"""Cores of Ray nodes as devices: candidates are profiled and measured where they will run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import autosplit
from autosplit.errors import MachineError
from autosplit.hardware.devices import device as devices
from autosplit.hardware.devices.device import RayCores
from autosplit.hardware.measurement.parity import compare
from tests.hardware.cluster.clusters import Nodes, ray_nodes  # noqa: F401  a fixture
from tests.hardware.fakes import in_time, wait_for

pytest.importorskip("ray")
pytestmark = pytest.mark.integration
HERE = str(devices.along(1)[0])
LEFT, RIGHT = f"ray:left/{HERE}", f"ray:right/{HERE}"


@pytest.mark.parametrize("along", [[LEFT, RIGHT], [LEFT, HERE], [HERE, LEFT]], ids="-".join)
def test_stages_on_nodes_and_here_compute_what_the_whole_does(
    branches: Any, along: list[str], nodes: Nodes
) -> None:
    items = branches.items(20)
    with branches.split([["first"]]).pipeline(along) as pipeline:
        assert compare(in_time(lambda: pipeline.run(items)), branches.expected(items)).equal
    wait_for(lambda: not nodes.actors(nodes.cluster.head_node))


def test_op_times_are_those_of_the_node_and_links_those_between_nodes(
    branches: Any, nodes: Nodes
) -> None:
    places = devices.along(2, [LEFT, RIGHT])
    profiles = branches.profiles(places, 0.2)
    assert [p.device for p in profiles] == [LEFT, RIGHT]
    assert all(len(p.op_ms) == len(branches.graph.ops) and sum(p.op_ms) > 0 for p in profiles)
    for link, place in zip(branches.links(places), places, strict=True):
        assert link.device == str(place)
        assert link.bandwidth > 0
        assert link.call_ms > 0
    # To this machine, whose end costs nothing.
    here, left = branches.links(devices.along(2, [HERE, LEFT]))
    assert (here.device, left.device) == (HERE, LEFT)
    assert here.latency_ms + 1 / here.bandwidth == 0 < left.latency_ms + 1 / left.bandwidth


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ray:nowhere/cores:0", "no node or resource 'nowhere'"),
        ("ray:*/cores:0", "one of 2 nodes"),
        ("ray:left/cores:0-8", "has 8 CPUs in Ray, its replicas need 9"),
        ("ray:left/cores:4000", "needs core 4000"),
    ],
)
def test_a_device_that_is_not_there_is_named_in_one_line(
    branches: Any, name: str, text: str, nodes: Nodes
) -> None:
    with pytest.raises(MachineError, match=text) as error:
        branches.profiles([devices.parse(name)], 0.1)
    assert "\n" not in str(error.value)


def test_another_autosplit_on_a_node_is_named(
    branches: Any, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    from autosplit.hardware.cluster import replica

    monkeypatch.setattr(replica, "VERSION", "9.9")
    with pytest.raises(MachineError, match=r"there and 9\.9 here; install the same"):
        branches.split([["first"]]).pipeline([LEFT, RIGHT])


def test_the_export_of_a_study_runs_where_it_was_measured(
    branches: Any, nodes: Nodes, tmp_path: Path
) -> None:
    (tmp_path / "study.toml").write_text(
        f"""
        model = "{branches.path}"
        runtime = "tvm"
        devices = ["{LEFT}", "{RIGHT}"]
        export = "out"
        [search]
        trials = 1
        [measure]
        seconds = 0.2
        share = 0.2
        """
    )
    environment = {**os.environ, "RAY_ADDRESS": nodes.cluster.address}

    def run(*words: str, **options: Any) -> bytes:
        command = [sys.executable, "-m", "autosplit", *words]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, check=False, **options
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    run("run", "study.toml")
    manifest = json.loads((tmp_path / "out" / "split.json").read_text())
    assert [stage["device"] for stage in manifest["stages"]] == [LEFT, RIGHT]
    assert manifest["measured"]
    names = {baseline["name"] for baseline in manifest["baselines"]}
    assert f"tvm, {LEFT}" in names or "tvm, 2 replicas" in names
    items = branches.items(4)
    with autosplit.load(tmp_path / "out").on_ray() as pipeline:
        assert nodes.actors(nodes.cluster.head_node)
        assert nodes.actors(nodes.right)
        assert compare(in_time(lambda: pipeline.run(items)), branches.expected(items)).equal
    assert isinstance(devices.parse(LEFT), RayCores)
