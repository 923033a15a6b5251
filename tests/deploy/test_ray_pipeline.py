"""Exports on a real Ray cluster of several nodes, beside the same exports on this machine."""

import subprocess
import sys
from itertools import cycle, islice

import pytest

import autosplit
from autosplit.errors import MachineError, StageError
from autosplit.hardware.cluster import pool
from autosplit.hardware.devices import device
from autosplit.hardware.measurement.parity import compare
from tests.deploy.exports import split_on
from tests.hardware.cluster.clusters import Nodes, ray_nodes  # noqa: F401  a fixture
from tests.hardware.fakes import in_time, wait_for

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.integration
CORE = str(device.along(1)[0])
LIMIT_S = 240.0


@pytest.fixture(scope="module")
def folder(branches, tmp_path_factory):
    where = ("tvm", (CORE,)), ("tvm", (CORE,)), ("tvm", (CORE, CORE))
    folder = tmp_path_factory.mktemp("branches")
    return split_on(branches, [["first"], ["hinted"]], *where).export(folder)


def places(count):
    sides = cycle(["left", "right"])
    return [f"ray:{next(sides)}/{CORE}" for _ in range(count)]


def test_a_node_lost_under_load_is_named_with_its_items(folder, nodes, branches):
    where = [f"ray:left/{CORE}", f"ray:right/{CORE}", f"ray:left/{CORE}", f"ray:left/{CORE}"]

    def run():
        for outputs in pipeline.map(cycle(items)):
            results.append(outputs)
            if len(results) == 30:
                nodes.cluster.remove_node(nodes.right, allow_graceful=False)

    items, results = branches.items(8), []
    with autosplit.load(folder).on_ray(where) as pipeline, pytest.raises(StageError) as caught:
        in_time(run, LIMIT_S)
    error, expected = str(caught.value), cycle(branches.expected(items))
    assert compare(results, list(islice(expected, len(results)))).equal
    assert "stage 1 on node" in error
    assert "is gone: its" in error
    inside = error.partition("items inside: ")[2].split("; ")[0].split(", ")
    # No item is lost unseen: what came out, and what was inside or done behind a lost one.
    assert len(results) >= 30
    assert int(inside[0]) >= len(results)
    assert len(inside) <= pipeline.capacity
    wait_for(lambda: not nodes.actors(nodes.cluster.head_node))
    nodes.add_right()
    # Until Ray has noticed, a placement may choose the dead node.
    wait_for(lambda: sum(node["Alive"] for node in ray.nodes()) == 2)


def test_a_core_that_a_node_lacks_or_an_interrupt_leaves_no_actor(folder, nodes, monkeypatch):
    with pytest.raises(MachineError, match=r"stage 0 on node .* needs core 4000"):
        autosplit.load(folder).on_ray(["ray:left/cores:4000", *places(3)])
    actors = []

    def take(*where):
        if actors:
            wait_for(lambda: nodes.actors(nodes.cluster.head_node))
            raise KeyboardInterrupt
        actors.append(pool.take(*where))
        return actors[0]

    monkeypatch.setattr("autosplit.hardware.cluster.pipeline.take", take)
    with pytest.raises(KeyboardInterrupt):
        autosplit.load(folder).on_ray(places(4))
    for node in (nodes.cluster.head_node, nodes.right):
        wait_for(lambda node=node: not nodes.actors(node))


def test_a_program_that_closes_nothing_ends_quietly(folder, nodes):
    program = f"""
import numpy as np
import autosplit
pipeline = autosplit.load({str(folder)!r}).on_ray({places(4)}, {nodes.cluster.address!r})
item = {{p.name: np.zeros(p.shape, p.dtype) for p in pipeline.wiring.inputs}}
for _ in range(3):
    pipeline.submit(item)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_the_server_has_its_replicas_on_the_cluster(branches, nodes, tmp_path):
    pytest.importorskip("tritonclient.http")
    from tests.deploy.test_server import served_by_command, tensors

    split_on(branches, [], ("tvm", (CORE, CORE), 2)).export(tmp_path)
    items = branches.items(3)
    expected, address = branches.expected(items), nodes.cluster.address
    with served_by_command(tmp_path, "--ray", RAY_ADDRESS=address) as infer:
        assert nodes.actors(nodes.cluster.head_node) or nodes.actors(nodes.right)
        answers = [infer(tensors(item)) for item in items]
    results = [{name: answer.as_numpy(name) for name in expected[0]} for answer in answers]
    assert compare(results, expected).equal


def test_a_decoder_generates_on_two_nodes(nodes, monkeypatch):
    pytest.importorskip("transformers", reason="transformers is not installed")
    from studies.examples import generate

    where = [f"ray:left/{CORE}", f"ray:right/{CORE}"]
    monkeypatch.setattr("sys.argv", ["", "--layers=2", "--tokens=8", "--devices", *where])
    assert in_time(generate.main, LIMIT_S) == 0  # equal to model.generate
