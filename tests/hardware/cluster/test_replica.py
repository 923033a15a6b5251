"""A pipeline whose replicas are actors: what travels, without Ray and in one process."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from autosplit.errors import StageError
from autosplit.hardware.cluster.actor import ReplicaPlan, StageActor
from autosplit.hardware.cluster.pipeline import LANES, uses_of_outputs
from autosplit.hardware.cluster.replica import RayReplica
from autosplit.hardware.devices import device
from autosplit.hardware.execution.pipeline import Pipeline
from autosplit.hardware.execution.wiring import wire
from autosplit.versions import VERSION
from tests.hardware.execution.test_streams import SUM, summing
from tests.hardware.fakes import FakeStage, fake_pipeline, graph, in_time, items, sequential

NET = graph([("a", ["x"]), ("b", ["a", "z"]), ("y", ["b", "a"])], ["x", "z"], ["y", "a"])
CORE = str(device.along(1)[0])


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make a pipeline of actors from the wiring and the fake replicas of another."""
    address = SimpleNamespace(get_node_ip_address=lambda: "127.0.0.1")
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(util=address))
    opened: list[Pipeline] = []

    def replica(wiring: Any, stage: int, fake: Any, cause: str) -> RayReplica:
        ways = uses_of_outputs(wiring, stage)
        file: Any = SimpleNamespace(require_here=lambda: None, load=lambda *_: [fake], digests={})
        address = StageActor().load(ReplicaPlan(VERSION, file, CORE, b"k", *ways))
        outputs = ways[0], len(wiring.stages[stage].outputs)
        return RayReplica(f"stage {stage}", address, b"k", outputs, lambda: cause, lambda: None)

    def deploy(wiring: Any, fakes: Any, cause: str = "") -> Pipeline:
        stages = [[replica(wiring, s, f, cause) for f in row] for s, row in enumerate(fakes)]
        opened.append(Pipeline(wiring, stages, lanes=[LANES] * len(stages)))
        return opened[-1]

    yield deploy
    for pipeline in opened:
        pipeline.close()


def fakes_of(wiring: Any, net: Any, copies: int = 1, stage: Any = FakeStage) -> Any:
    return [[stage(net, ports) for _ in range(copies)] for ports in wiring.stages]


def wired(net: Any, stages: Any, outputs: Any) -> Any:
    return wire(net, stages, [(name, name) for name in outputs])


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("stages", [[[0, 1, 2]], [[0], [1], [2]], [[0, 1], [2]]], ids=len)
def test_actors_compute_what_the_graph_does_in_order(deployed, stages, copies):
    wiring = wired(NET, stages, ["y", "a"])
    pipeline = deployed(wiring, fakes_of(wiring, NET, copies))
    many = items(50, ["x", "z"])
    for result, item in zip(in_time(lambda: pipeline.run(many)), many, strict=True):
        expected = sequential(NET, item, ["y", "a"])
        assert {n: v.tolist() for n, v in result.items()} == {
            n: v.tolist() for n, v in expected.items()
        }


@pytest.mark.parametrize("copies", [1, 2])
def test_streams_keep_states_of_their_own_in_the_actors(deployed, copies):
    reference = summing()
    pipeline = deployed(reference.wiring, fakes_of(reference.wiring, SUM, copies))
    with reference:
        for stream in (0, "b", 0, "b", "c"):
            some = items(7)
            ours = in_time(lambda s=stream, i=some: pipeline.run(i, stream=s))
            theirs = reference.run(some, stream=stream)
            assert [r["y"].tolist() for r in ours] == [r["y"].tolist() for r in theirs]
        states = in_time(lambda: pipeline.state("b"))
        expected = reference.state("b")
        assert {n: v.tolist() for n, v in states.items()} == {
            n: v.tolist() for n, v in expected.items()
        }
        pipeline.reset("new", states)
        after = in_time(lambda: pipeline.run(items(2), stream="new"))
        assert [r["y"].tolist() for r in after] == [
            r["y"].tolist() for r in reference.run(items(2), stream="b")
        ]


def test_an_actor_drops_the_tensors_that_nobody_needs(deployed):
    alive: weakref.WeakSet[Any] = weakref.WeakSet()

    class Watched(FakeStage):
        def run(self, values):
            results = super().run(values)
            self.seen.clear()
            tensors = [Result(result) for result in results]
            alive.update(tensors)
            return tensors

    class Result:
        """A tensor that can be referred to weakly."""

        def __init__(self, array):
            self._array = array

        def numpy(self):
            return self._array

    wiring = wired(NET, [[0], [1], [2]], ["y"])
    pipeline = deployed(wiring, fakes_of(wiring, NET, stage=Watched))
    in_time(lambda: pipeline.run(items(200, ["x", "z"])))
    gc.collect()
    assert len(alive) <= 2 * pipeline.capacity


def test_a_stage_that_fails_is_named_with_its_error_and_the_items_inside(deployed):
    class Failing(FakeStage):
        def run(self, values):
            if self.number == 5:
                raise ValueError("bad tensor\nmore")
            self.number += 1
            return super().run(values)

        number = 0

    wiring = wired(NET, [[0, 1], [2]], ["y"])
    pipeline = deployed(wiring, fakes_of(wiring, NET, stage=Failing))
    text = (
        "stage [01] failed: StageError: stage [01]: ValueError: bad tensor; .*items inside: [0-5]"
    )
    with pytest.raises(StageError, match=text):
        in_time(lambda: pipeline.run(items(30, ["x", "z"])))


def test_the_cause_of_a_broken_channel_is_what_the_cluster_says(deployed):
    wiring = wired(NET, [[0, 1, 2]], ["y"])
    pipeline = deployed(wiring, fakes_of(wiring, NET, stage=Unreachable), "the node is gone")
    with pytest.raises(StageError, match="the node is gone"):
        in_time(lambda: pipeline.run(items(1, ["x", "z"])))


class Unreachable(FakeStage):
    """Its actor's channel ends in the middle of an answer."""

    def run(self, values):
        return [Unsendable() for _ in self._ports.outputs]


class Unsendable:
    def numpy(self):
        raise ConnectionError("gone")


def test_both_lanes_of_a_replica_call_it_at_once():
    both = threading.Barrier(2)
    local, (stage,) = fake_pipeline(NET, [[0, 1, 2]], ["y"], before={0: lambda _: both.wait(60)})
    with Pipeline(local.wiring, [[stage]], lanes=[2]) as pipeline:
        assert len(in_time(lambda: pipeline.run(items(6, ["x", "z"])))) == 6
        assert pipeline.replicas == (1,)
    local.close()
