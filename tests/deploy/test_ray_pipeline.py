"""Exports on a real Ray cluster of several nodes, beside the same exports on this machine."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autosplit
from autosplit.deploy.export import write_split
from autosplit.deployment import Deployment, Stage
from autosplit.errors import ConfigError, MachineError, StageError
from autosplit.hardware.devices import device
from autosplit.hardware.measurement.parity import compare
from autosplit.hardware.measurement.results import SplitResults
from autosplit.zoo import stream_nets, weights
from tests.hardware.cluster.clusters import Nodes, ray_nodes  # noqa: F401  a fixture
from tests.hardware.fakes import in_time, wait_for
from tests.nets import net

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.integration
CORE = str(device.along(1)[0])
LIMIT_S = 240.0


@pytest.fixture(scope="module")
def amplifier(tmp_path_factory: pytest.TempPathFactory) -> Any:
    import onnx

    file = tmp_path_factory.mktemp("net") / "amplifier.onnx"
    net, shapes = stream_nets.amplifier(3, 4, 8)
    weights.fill(net.graph, shapes, seed=0)
    onnx.save(net, file)
    states = {f"past_{i}": f"present_{i}" for i in range(3)}
    return autosplit.load_model(file, states=states)


def written(model: Any, after: list[list[str]], copies: int, folder: Path) -> Path:
    """An export whose last stage has ``copies`` replicas."""
    stages = model.split(after).stages
    deployed = [Stage.on(ops, "tvm", (CORE,)) for ops in stages[:-1]]
    deployed.append(Stage.on(stages[-1], "tvm", (CORE,) * copies))
    write_split(model, Deployment(tuple(deployed)), folder, SplitResults())
    return folder


@pytest.fixture(scope="module")
def folder(branches: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(branches, [["first"], ["hinted"]], 2, tmp_path_factory.mktemp("branches"))


@pytest.fixture(scope="module")
def stream_folder(amplifier: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(amplifier, [["layer0.sum"]], 2, tmp_path_factory.mktemp("amplifier"))


def places(count: int) -> list[str]:
    sides = cycle(["left", "right"])
    return [f"ray:{next(sides)}/{CORE}" for _ in range(count)]


@contextlib.contextmanager
def started(way: str, folder: Path, nodes: Nodes) -> Iterator[Any]:
    loaded = autosplit.load(folder)
    count = sum(loaded.replicas)
    pipeline = loaded.on_ray(places(count)) if way == "ray" else loaded
    with pipeline:
        yield pipeline


# These count actors, so they come before those that share a pipeline.


def collect(pipeline: Any, model: Any, results: list[Any], disturb: Any) -> StageError:
    """The error of a pipeline that is disturbed with items inside."""
    items = model.items(8)

    def run() -> None:
        for outputs in pipeline.map(cycle(items)):
            results.append(outputs)
            if len(results) == 30:
                disturb()

    with pytest.raises(StageError) as error:
        in_time(run, LIMIT_S)
    expected = model.expected(items)
    repeated = [expected[i % 8] for i in range(len(results))]
    assert compare(results, repeated).equal
    return error.value


@pytest.mark.parametrize("loss", ["actor", "node"])
def test_a_loss_under_load_names_who_and_the_items(
    loss: str, folder: Path, nodes: Nodes, branches: Any
) -> None:
    where = [f"ray:left/{CORE}", f"ray:right/{CORE}", f"ray:left/{CORE}", f"ray:left/{CORE}"]

    def disturb() -> None:
        if loss == "actor":
            (actor,) = nodes.actors(nodes.right)
            actor.kill()
        else:
            nodes.cluster.remove_node(nodes.right, allow_graceful=False)

    results: list[Any] = []
    with autosplit.load(folder).on_ray(where) as pipeline:
        error = collect(pipeline, branches, results, disturb)
    assert "stage 1 on node" in str(error)
    assert "is gone: its" in str(error)
    inside = str(error).partition("items inside: ")[2].split("; ")[0].split(", ")
    # No item is lost unseen: what came out, and what was inside or done behind a lost one.
    assert len(results) >= 30
    assert int(inside[0]) >= len(results)
    assert len(inside) <= pipeline.capacity
    wait_for(lambda: not nodes.actors(nodes.cluster.head_node))
    if loss == "node":
        nodes.add_right()
        # Until Ray has noticed, a placement may choose the dead node.
        wait_for(lambda: sum(node["Alive"] for node in ray.nodes()) == 2)


def test_wrong_places_are_refused_and_leave_no_actor(folder: Path, nodes: Nodes) -> None:
    loaded = autosplit.load(folder)
    with pytest.raises(MachineError, match="no node or resource 'nowhere'"):
        loaded.on_ray(["ray:nowhere"] * 4)
    with pytest.raises(MachineError, match=r"stage 0 on node .* needs core 4000"):
        loaded.on_ray(["ray:left/cores:4000", *places(3)])
    for node in (nodes.cluster.head_node, nodes.right):
        wait_for(lambda node=node: not nodes.actors(node))


@pytest.fixture(scope="module", params=["load", "ray"])
def pipeline(request: pytest.FixtureRequest, folder: Path, nodes: Nodes) -> Iterator[Any]:
    with started(request.param, folder, nodes) as pipeline:
        yield pipeline


@pytest.fixture(scope="module", params=["load", "ray"])
def streams(request: pytest.FixtureRequest, stream_folder: Path, nodes: Nodes) -> Iterator[Any]:
    with started(request.param, stream_folder, nodes) as pipeline:
        yield pipeline


def test_outputs_are_the_model_s_in_the_order_of_the_items(pipeline: Any, branches: Any) -> None:
    items = branches.items(60)
    assert pipeline.replicas == (1, 1, 2)
    assert compare(in_time(lambda: pipeline.run(items)), branches.expected(items)).equal


def test_submitted_items_come_out_of_results(pipeline: Any, branches: Any) -> None:
    items = branches.items(6)
    for item in items:
        in_time(lambda item=item: pipeline.submit(item))
    results = pipeline.results()
    outputs = in_time(lambda: [next(results) for _ in items])
    assert compare(outputs, branches.expected(items)).equal


def test_a_wrong_item_is_refused_and_the_next_one_computed(pipeline: Any, branches: Any) -> None:
    item = branches.items(1)[0]
    with pytest.raises(ConfigError, match="unknown input 'noise'"):
        pipeline.run([item, {"noise": item["image"]}])
    assert len(in_time(lambda: pipeline.run([item]))) == 1


def test_streams_have_states_of_their_own(streams: Any, amplifier: Any) -> None:
    items = amplifier.items(20)
    whole = in_time(lambda: streams.run(items, stream="whole"))
    assert compare(whole, amplifier.expected(items)).equal
    parts = [
        in_time(lambda s=s, half=half: streams.run(half, stream=s))
        for half in (items[:10], items[10:])
        for s in ("a", "b", "c")
    ]
    for number in range(3):
        assert compare(parts[number] + parts[number + 3], whole).equal


def test_a_stream_goes_on_from_its_state_in_another(streams: Any, amplifier: Any) -> None:
    items = amplifier.items(8)
    whole = in_time(lambda: streams.run(items, stream="first"))
    streams.reset("first")
    in_time(lambda: streams.run(items[:4], stream="first"))
    streams.reset("second", in_time(lambda: streams.state("first")))
    assert compare(in_time(lambda: streams.run(items[4:], stream="second")), whole[4:]).equal


@pytest.mark.parametrize("way", ["load", "ray"])
def test_a_closed_pipeline_says_so(way: str, folder: Path, nodes: Nodes, branches: Any) -> None:
    with started(way, folder, nodes) as pipeline:
        in_time(lambda: pipeline.run(branches.items(2)))
    in_time(pipeline.close)
    with pytest.raises(StageError, match="the pipeline is closed"):
        pipeline.run(branches.items(1))


def test_a_program_that_closes_nothing_ends_quietly(folder: Path, nodes: Nodes) -> None:
    program = f"""
import numpy as np
import autosplit
pipeline = autosplit.load({str(folder)!r}).on_ray({places(4)}, {nodes.cluster.address!r})
item = {{p.name: np.zeros(p.shape, p.dtype) for p in pipeline.wiring.inputs}}
for _ in range(3):
    pipeline.submit(item)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=LIMIT_S, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_an_index_out_of_its_table_is_refused_and_the_pipeline_stays(
    save: Any, tmp_path: Path, nodes: Nodes
) -> None:
    text = "g (int64[2] i) => (float[2,4] y) { y = Gather(w, i) }"
    autosplit.load_model(save(net(text, {"w": (9, 4)}))).split([]).export(tmp_path / "out")
    with autosplit.load(tmp_path / "out").on_ray(places(1)) as pipeline:
        for index in (-10, 9, 5000):
            with pytest.raises(ConfigError, match=f"input 'i' holds {index}; .* -9 to 8"):
                pipeline.run([{"i": np.array([0, index])}])
        assert pipeline.run([{"i": np.array([-9, 8])}])[0]["y"].shape == (2, 4)
