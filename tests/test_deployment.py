import pytest

from autosplit import deployment
from autosplit.deployment import Deployment, Option, Row, Stage


def test_a_split_leaves_out_empty_stages_and_has_its_replicas_on_the_next_devices():
    devices = ("cores:0", "cores:1", "cuda:0")
    deployment = Deployment.of_split(((0, 1), (), (2,)), devices, ["tvm"] * 3)
    assert [stage.devices for stage in deployment.stages] == [("cores:0",), ("cuda:0",)]
    assert (deployment.split, deployment.runtimes) == (((0, 1), (2,)), ("tvm", "tvm"))
    deployment = Deployment.of_split(((0, 1), (2,)), devices, ["tvm"] * 2, [1, 2])
    assert [stage.devices for stage in deployment.stages] == [("cores:0",), ("cores:1", "cuda:0")]
    with pytest.raises(ValueError, match="3 devices are not 4"):
        Deployment.of_split(((0, 1), (2,)), devices, ["tvm"] * 2, [2, 2])


def test_the_devices_say_how_many_replicas_and_threads_there_are():
    whole = Stage.on((0,), "openvino", ("cores:0-1", "cores:2,3", "cores:4-5"))
    deployment = Deployment((whole, Stage.on((1,), "tvm", ("rpc:a:1",))))
    assert (deployment.replicas, deployment.threads) == ((3, 1), (2, 1))


def stage(ops, kind, threads, replicas):
    return Stage((ops,), (Option(Row(kind, "tvm", threads), replicas),))


def test_a_replica_takes_the_next_cores_of_its_kind():
    deployment = Deployment((stage(0, "big", 1, 2), stage(1, "little", 2, 1)))
    placed = deployment.on_cores({"big": (0, 1), "little": (4, 5)})
    assert [s.devices for s in placed.stages] == [("cores:0", "cores:1"), ("cores:4,5",)]
    with pytest.raises(ValueError, match="1 cores are fewer than those of all replicas"):
        deployment.on_cores({"big": (0,), "little": (4, 5)})


def test_a_replica_takes_the_first_free_device_of_its_kind():
    devices = [("a", "cuda:0"), ("b", "cores:0-1"), ("a", "cuda:1")]
    deployment = Deployment((stage(0, "b", 1, 1), stage(1, "a", 1, 1)))
    for in_order, last in ((False, "cuda:0"), (True, "cuda:1")):
        placed = deployment.on_devices(devices, in_order)
        assert {s.devices: s.threads for s in placed.stages} == {("cores:0-1",): 2, (last,): 1}
    with pytest.raises(ValueError, match="2 devices are fewer"):
        deployment.on_devices(devices[:2], True)


@pytest.mark.parametrize(
    ("device", "plain", "resources"),
    [("cores:0,2", "cores:0,2", ("core 0", "core 2")),
     ("ray:a/cores:0-1", "cores:0-1", ("ray:a/core 0", "ray:a/core 1")),
     ("ray:a/cuda:0", "cuda:0", ("ray:a/cuda:0",)), ("cuda:1", "cuda:1", ("cuda:1",)),
     ("rpc:host:9090", "rpc:host:9090", ("rpc:host:9090",)),
     ("tracker:host:9190:board", "tracker:host:9190:board", ())],
)  # fmt: skip
def test_what_stages_on_one_device_share(device, plain, resources):
    assert deployment.on_its_machine(device) == plain
    assert deployment.resources_of(device) == resources
