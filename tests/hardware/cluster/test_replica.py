"""A pipeline whose replicas are actors of a real cluster, their stages made of numpy."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from autosplit.errors import StageError
from autosplit.hardware.cluster.pipeline import pipeline_of
from autosplit.hardware.cluster.replica import RayReplica
from autosplit.hardware.devices import device
from autosplit.hardware.devices.ray_nodes import only_place
from autosplit.hardware.execution.pipeline import Pipeline
from autosplit.hardware.execution.wiring import StagePorts, Wiring, wire
from tests.hardware.cluster.clusters import Nodes, ray_nodes  # noqa: F401  a fixture
from tests.hardware.fakes import FakeStage, fake_pipeline, graph, in_time, items, sequential

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.integration
NET = graph([("a", ["x"]), ("b", ["a", "z"]), ("y", ["b", "a"])], ["x", "z"], ["y", "a"])
CORE = str(device.along(1)[0])


class Forgetful(FakeStage):
    """Keeps no inputs: their memory is Ray's, which needs it for later items."""

    def run(self, values: Any) -> Any:
        results = super().run(values)
        self.seen.clear()
        return results


class Fragile(Forgetful):
    """Fails where the first input begins with 6."""

    def run(self, values: Any) -> Any:
        if values[0].tolist()[0] == 6:
            raise ValueError("bad tensor\nmore")
        return super().run(values)


@dataclass(frozen=True)
class FakeFile:
    """A stage file whose stage is a fake."""

    net: Any
    ports: StagePorts
    kind: type[FakeStage] = Forgetful
    digests: dict[str, str] = field(default_factory=dict)

    inputs = property(lambda self: self.ports.inputs)
    outputs = property(lambda self: self.ports.outputs)
    file = "fake"

    def require_here(self, _: Any) -> None:
        """Every machine can run it."""

    def load(self, *_: Any) -> list[FakeStage]:
        return [self.kind(self.net, self.ports)]


def deployed(
    net: Any, wiring: Wiring, copies: int = 1, kind: type[FakeStage] = Forgetful
) -> Pipeline:
    place = only_place(device.parse(f"ray:left/{CORE}"), ray.nodes())
    files: list[Any] = [FakeFile(net, ports, kind) for ports in wiring.stages]
    return pipeline_of(
        wiring, [[RayReplica(f, {}, {}, place) for _ in range(copies)] for f in files]
    )


def wired(stages: Any) -> Wiring:
    return wire(NET, stages, [("y", "y"), ("a", "a")])


def as_lists(results: Any) -> Any:
    return [{name: array.tolist() for name, array in result.items()} for result in results]


@pytest.mark.parametrize(("stages", "copies"), [([[0, 1, 2]], 1), ([[0], [1], [2]], 2)])
def test_actors_compute_what_the_graph_does_in_order(
    nodes: Nodes, stages: Any, copies: int
) -> None:
    many = items(50, ["x", "z"])
    with deployed(NET, wired(stages), copies) as pipeline:
        results = in_time(lambda: pipeline.run(many))
    assert as_lists(results) == as_lists([sequential(NET, item, ["y", "a"]) for item in many])


def test_a_stage_that_fails_is_named_with_its_error_and_the_items_inside(nodes: Nodes) -> None:
    text = r"stage 0 failed: StageError: stage 0 on node .*: ValueError: bad tensor; .*items inside"
    with (
        deployed(NET, wired([[0, 1], [2]]), kind=Fragile) as pipeline,
        pytest.raises(StageError, match=text),
    ):
        in_time(lambda: pipeline.run(items(30, ["x", "z"])))


def test_both_lanes_of_a_replica_call_it_at_once() -> None:

    both = threading.Barrier(2)
    local, (stage,) = fake_pipeline(NET, [[0, 1, 2]], ["y"], before={0: lambda _: both.wait(60)})
    with Pipeline(local.wiring, [[stage]], lanes=[2]) as pipeline:
        assert len(in_time(lambda: pipeline.run(items(6, ["x", "z"])))) == 6
        assert pipeline.replicas == (1,)
    local.close()
