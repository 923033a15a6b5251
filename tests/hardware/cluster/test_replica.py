"""A pipeline whose replicas are actors of a real cluster, their stages made of numpy."""

import threading
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from autosplit.errors import StageError
from autosplit.hardware.cluster import replica
from autosplit.hardware.cluster.actor import StageActor
from autosplit.hardware.cluster.pipeline import pipeline_of
from autosplit.hardware.cluster.replica import RayReplica
from autosplit.hardware.devices import device
from autosplit.hardware.devices.ray_nodes import only_place
from autosplit.hardware.execution.pipeline import Pipeline
from autosplit.hardware.execution.stage_spec import StageSpec
from autosplit.hardware.execution.wiring import wire
from tests.hardware.cluster.clusters import Nodes, ray_nodes  # noqa: F401  a fixture
from tests.hardware.fakes import FakeStage, computed, fake_pipeline, graph, in_time, items, plain

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.integration
NET = graph([("a", ["x"]), ("b", ["a", "z"]), ("y", ["b", "a"])], ["x", "z"], ["y", "a"])
CORE = str(device.along(1)[0])


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


@pytest.fixture(autouse=True)
def _fake_actors(monkeypatch):
    monkeypatch.setattr(replica, "StageActor", FakeActor)


def deployed(stages, copies=1, batch=1):
    larger = {n: replace(t, shape=(batch * t.shape[0],)) for n, t in NET.tensors.items()}
    wiring = wire(replace(NET, tensors=larger), stages, [("y", "y"), ("a", "a")])
    place = only_place(device.parse(f"ray:left/{CORE}"), ray.nodes())
    files = [FakeFile(NET, ports) for ports in wiring.stages]
    replicas = [[RayReplica(f, {}, {}, place) for _ in range(copies)] for f in files]
    return pipeline_of(wiring, replicas, batch=batch)


def test_a_stage_that_fails_is_named_with_its_error_and_the_items_inside(nodes):
    text = r"stage 0 failed: StageError: stage 0 on node .*: ValueError: bad tensor; .*items inside"
    with deployed([[0, 1], [2]]) as pipeline, pytest.raises(StageError, match=text):
        in_time(lambda: pipeline.run(items(30, ["x", "z"])))


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


def test_both_lanes_of_a_replica_call_it_at_once():
    both = threading.Barrier(2)
    local, (stage,) = fake_pipeline(NET, [[0, 1, 2]], ["y"], before={0: lambda _: both.wait(60)})
    with Pipeline(local.wiring, [[stage]], lanes=[2]) as pipeline:
        assert len(in_time(lambda: pipeline.run(items(6, ["x", "z"])))) == 6
        assert pipeline.replicas == (1,)
    local.close()
