"""Cores of Ray nodes as devices: candidates are profiled and measured where they will run."""

import numpy as np
import pytest

import autosplit
from autosplit.deploy import manifest_file
from autosplit.errors import MachineError, StageError
from autosplit.hardware.bench.local import LocalBench
from autosplit.hardware.cluster import pool
from autosplit.hardware.devices import device as devices
from autosplit.hardware.measurement.parity import compare
from tests.benches import BRIEF, deployed
from tests.hardware.cluster.clusters import Nodes, ray_nodes  # noqa: F401  a fixture
from tests.hardware.fakes import in_time, plain
from tests.nets import judge, net

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.integration
HERE = str(devices.along(1)[0])
LEFT, RIGHT = f"ray:left/{HERE}", f"ray:right/{HERE}"


def test_a_candidate_takes_the_actors_of_the_one_before_as_long_as_they_work(branches, nodes):
    items, processes = branches.items(4), []
    for first in ("first", "early", "first"):
        with branches.split([[first], ["hinted"]]).pipeline([LEFT, HERE, RIGHT]) as pipeline:
            assert compare(in_time(lambda p=pipeline: p.run(items)), branches.expected(items)).equal
            sides = nodes.cluster.head_node, nodes.right
            processes.append({process.pid for side in sides for process in nodes.actors(side)})
            if len(processes) == 2:
                nodes.actors(nodes.right)[0].kill()
                with pytest.raises(StageError, match="is gone"):
                    in_time(lambda p=pipeline: p.run(items * 9))
    assert processes[0] == processes[1] != processes[2]
    nodes.actors(nodes.right)[0].kill()  # while it is idle
    with branches.split([["first"]]).pipeline([LEFT, RIGHT]) as pipeline:
        in_time(lambda: judge(branches, pipeline, items=4))


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


def test_a_candidate_is_measured_on_its_nodes_and_its_export_runs_there(branches, nodes, tmp_path):
    bench = LocalBench(branches, devices.along(2, [LEFT, RIGHT]), BRIEF)
    split, whole = branches.split([["first"]]), f"tvm, {LEFT}"
    (measured,), baselines = bench.compare_interleaved([deployed(bench, split.stages)], [whole])
    assert measured.max_rel_error < 1e-4
    assert [*baselines] == [whole]
    split.export(tmp_path, [LEFT, RIGHT])
    assert [stage.device for stage in manifest_file.read(tmp_path).stages] == [LEFT, RIGHT]
    with autosplit.load(tmp_path, delay_ms=3).on_ray() as pipeline:
        assert pipeline.delay_ms == 3
        assert nodes.actors(nodes.cluster.head_node)
        assert nodes.actors(nodes.right)
        in_time(lambda: judge(branches, pipeline, items=4))


@pytest.mark.usefixtures("nodes")
@pytest.mark.parametrize("place", [LEFT, RIGHT])
def test_an_item_that_fails_is_named_with_its_error_and_fails_no_other(save, place):
    text = "g (int64 n) => (float[4] y) { r = Range(i, n, k)  f = Cast<to=1>(r)  y = Mul(f, f) }"
    weights = {"i": np.array(0), "k": np.array(1)}
    model = autosplit.load_model(save(net(text, weights)), runtime="onnxruntime")
    good, bad = {"n": np.array(4)}, {"n": np.array(5)}
    error = r"stage 1 failed on this item: StageError: stage 1 on node .*: .*invalid dimensions"
    with model.split([["r"]]).pipeline([LEFT, place]) as pipeline:
        tickets = [pipeline.enter(item) for item in (good, bad, good)]
        with pytest.raises(StageError, match=error):
            in_time(lambda: pipeline.result(tickets.pop(1)))
        results = in_time(lambda: [pipeline.result(ticket) for ticket in tickets])
    assert plain(results) == [{"y": [0.0, 1.0, 4.0, 9.0]}] * 2
