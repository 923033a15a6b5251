"""Deployments as values."""

import pytest

from autosplit.deployment import DeployedStage, Deployment, cores_of


def test_a_split_has_one_replica_a_stage_and_leaves_out_empty_stages() -> None:
    deployment = Deployment.of_split(
        ((0, 1), (), (2,)), ("cores:0", "cores:1", "cuda:0"), ["tvm"] * 3
    )
    assert [stage.devices for stage in deployment.stages] == [("cores:0",), ("cuda:0",)]
    assert deployment.split == ((0, 1), (2,))
    assert deployment.runtimes == ("tvm", "tvm")


def test_the_replicas_of_a_stage_are_on_the_next_devices() -> None:
    devices, runtimes = ["cores:0", "cores:1", "cuda:0"], ["tvm"] * 2
    deployment = Deployment.of_split(((0, 1), (2,)), devices, runtimes, [1, 2])
    assert [stage.devices for stage in deployment.stages] == [("cores:0",), ("cores:1", "cuda:0")]
    with pytest.raises(ValueError, match="3 devices are not 4"):
        Deployment.of_split(((0, 1), (2,)), devices, runtimes, [2, 2])


def test_the_devices_say_how_many_replicas_and_threads_there_are() -> None:
    whole = DeployedStage((0,), "openvino", ("cores:0-1", "cores:2,3", "cores:4-5"))
    deployment = Deployment((whole, DeployedStage((1,), "tvm", ("rpc:a:1",))))
    assert (deployment.replicas, deployment.threads) == ((3, 1), (2, 1))


@pytest.mark.parametrize(
    ("device", "cores"), [("cores:3", (3,)), ("cores:0-2,2,7", (0, 1, 2, 7)), ("cuda:0", ())]
)
def test_the_cores_of_a_device(device: str, cores: tuple[int, ...]) -> None:
    assert cores_of(device) == cores
