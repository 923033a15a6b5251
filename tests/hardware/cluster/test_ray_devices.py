"""Cores of Ray nodes as devices: candidates are profiled and measured where they will run."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

import autosplit
from autosplit.deploy import manifest_file, worker
from autosplit.deployment import Deployment
from autosplit.errors import MachineError, StageError
from autosplit.hardware.bench.local import LocalBench
from autosplit.hardware.cluster import pool, replica
from autosplit.hardware.cluster.actor import StageActor
from autosplit.hardware.cluster.pipeline import pipeline_of
from autosplit.hardware.cluster.replica import RayReplica
from autosplit.hardware.devices import device as devices
from autosplit.hardware.devices.ray_nodes import only_place
from autosplit.hardware.execution.stage_spec import StageSpec
from autosplit.hardware.execution.wiring import wire
from autosplit.hardware.measurement.parity import compare
from autosplit.hardware.measurement.results import SplitResults
from tests.benches import BRIEF
from tests.hardware.cluster.clusters import Nodes, ray_nodes  # noqa: F401  a fixture
from tests.hardware.fakes import FakeStage, computed, graph, in_time, items, plain, wait_for
from tests.nets import judge

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.integration
HERE = str(devices.along(1)[0])
LEFT, RIGHT = f"ray:left/{HERE}", f"ray:right/{HERE}"


def test_stages_on_nodes_and_here_compute_what_the_whole_does(branches, nodes):
    items = branches.items(20)
    with branches.split([["first"], ["hinted"]]).pipeline([LEFT, HERE, RIGHT]) as pipeline:
        assert compare(in_time(lambda: pipeline.run(items)), branches.expected(items)).equal


def test_a_candidate_takes_the_actors_of_the_one_before_as_long_as_they_work(branches, nodes):
    items, processes = branches.items(4), []
    for _ in range(3):
        with branches.split([["hinted"]]).pipeline([LEFT, RIGHT]) as pipeline:
            assert compare(in_time(lambda p=pipeline: p.run(items)), branches.expected(items)).equal
            sides = nodes.cluster.head_node, nodes.right
            processes.append({process.pid for side in sides for process in nodes.actors(side)})
            if len(processes) == 2:
                nodes.actors(nodes.right)[0].kill()
                with pytest.raises(StageError, match="is gone"):
                    in_time(lambda p=pipeline: p.run(items * 9))
    assert processes[0] == processes[1] != processes[2]


def test_splits_start_no_actor_again_and_a_node_that_is_lost_is_named(branches, nodes, monkeypatch):
    started, start = [], pool.PooledActor

    def counted(*arguments):
        started.append(arguments)
        return start(*arguments)

    monkeypatch.setattr(pool, "PooledActor", counted)
    model = autosplit.load_model(branches.path, runtime="auto")
    items, counts = model.items(2), []
    for after in ("hinted", "hinted", "first", "hinted"):
        with model.split([[after]]).pipeline([LEFT, RIGHT]) as pipeline:
            assert compare(in_time(lambda p=pipeline: p.run(items)), model.expected(items)).equal
        counts.append(len(started))
    assert counts[0] <= 4  # for each node one that is asked and one for stages
    assert counts == counts[:1] * 4
    nodes.cluster.remove_node(nodes.right, allow_graceful=False)
    wait_for(lambda: sum(node["Alive"] for node in ray.nodes()) == 1)
    with pytest.raises(MachineError, match="no node or resource 'right'"):
        model.split([["hinted"]]).pipeline([LEFT, RIGHT])
    nodes.add_right()


def test_op_times_are_those_of_the_node_and_links_those_between_nodes(branches, nodes):
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


def test_another_autosplit_on_a_node_is_named(branches, nodes, monkeypatch):
    monkeypatch.setattr(pool, "VERSION", "9.9")
    monkeypatch.setattr(pool, "_idle", {})
    with pytest.raises(MachineError, match=r"there and 9\.9 here; install the same"):
        branches.split([["first"]]).pipeline([LEFT, RIGHT])


def test_the_export_of_a_candidate_runs_where_it_was_measured(branches, nodes, tmp_path):
    bench = LocalBench(branches, devices.along(2, [LEFT, RIGHT]), BRIEF)
    stages = branches.split([["first"]]).stages
    deployment = Deployment.of_split(stages, [LEFT, RIGHT], ["tvm"] * 2)
    (measured,), baselines = bench.compare_interleaved([deployment], [f"tvm, {LEFT}"])
    known = SplitResults(measured, None, [*baselines.values()])
    worker.export(bench, deployment, folder=tmp_path, results=known)
    manifest = manifest_file.read(tmp_path)
    assert [stage.device for stage in manifest.stages] == [LEFT, RIGHT]
    assert manifest.measured
    assert [baseline.name for baseline in manifest.baselines] == [f"tvm, {LEFT}"]
    with autosplit.load(tmp_path).on_ray() as pipeline:
        assert nodes.actors(nodes.cluster.head_node)
        assert nodes.actors(nodes.right)
        in_time(lambda: judge(branches, pipeline, items=4))


# replicas that are actors, their stages made of numpy


NET = graph([("a", ["x"]), ("b", ["a", "z"]), ("y", ["b", "a"])], ["x", "z"], ["y", "a"])


class Fragile(FakeStage):
    """Fails where its input holds 6; keeps no inputs, whose memory Ray needs for later."""

    def run(self, values):
        if 6 in values[0]:
            raise ValueError("bad tensor\nmore")
        results = super().run(values)
        self.seen.clear()
        return results


@dataclass(frozen=True)
class FakeFile:
    """A stage file whose stage is a fake."""

    net: Any
    ports: StageSpec
    digests: dict[str, str] = field(default_factory=dict)

    inputs = property(lambda self: self.ports.inputs)
    outputs = property(lambda self: self.ports.outputs)
    file = "fake"


class FakeActor(StageActor):
    """Loads the stage of a FakeFile on every machine."""

    def _loaded(self, spec, *_):
        return Fragile(spec.net, spec.ports)


@pytest.fixture
def fake_actors(monkeypatch):
    monkeypatch.setattr(replica, "StageActor", FakeActor)


def deployed(stages, copies=1, batch=1):
    larger = {n: replace(t, shape=(batch * t.shape[0],)) for n, t in NET.tensors.items()}
    wiring = wire(replace(NET, tensors=larger), stages, [("y", "y"), ("a", "a")])
    place = only_place(devices.parse(f"ray:left/{HERE}"), ray.nodes())
    files = [FakeFile(NET, ports) for ports in wiring.stages]
    replicas = [[RayReplica(f, {}, {}, place) for _ in range(copies)] for f in files]
    return pipeline_of(wiring, replicas, batch=batch)


@pytest.mark.usefixtures("fake_actors")
def test_a_stage_that_fails_on_an_item_is_named_with_its_error(nodes):
    text = r"stage 0 failed on this item: StageError: stage 0 on node .*: ValueError: bad tensor"
    with deployed([[0, 1], [2]]) as pipeline, pytest.raises(StageError, match=text):
        in_time(lambda: pipeline.run(items(30, ["x", "z"])))


@pytest.mark.usefixtures("fake_actors")
@pytest.mark.parametrize("copies", [1, 2])
def test_an_item_that_fails_in_a_batch_does_not_fail_its_neighbours(nodes, copies):
    many = items(12, ["x", "z"])
    with deployed([[0, 1], [2]], copies, batch=4) as pipeline:
        places = [pipeline.enter(item) for item in many]
        text = r"on this item: StageError: .*: ValueError: bad tensor"
        with pytest.raises(StageError, match=text):
            in_time(lambda: pipeline.result(places.pop(5)))
        results = in_time(lambda: [pipeline.result(place) for place in places])
    assert plain(results) == computed(NET, (*many[:5], *many[6:]), ["y", "a"])
