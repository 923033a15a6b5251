"""Exports of deployments: replicas, threads, and stages in several runtimes."""

from dataclasses import replace

import pytest

import autosplit
from autosplit.deploy import manifest_file
from autosplit.deploy.export import write_split
from autosplit.deploy.verify import bench, verify
from autosplit.deployment import Deployment, Stage
from autosplit.hardware.devices import device
from autosplit.hardware.measurement.measure import Budget
from autosplit.hardware.measurement.parity import compare
from autosplit.hardware.measurement.results import SplitResults
from autosplit.hardware.runtimes.registry import AUTO

CORES = [str(place) for place in device.along(2)]


@pytest.fixture(scope="module")
def model(branches):
    return replace(branches, runtime_name=AUTO)


@pytest.fixture(scope="module")
def deployment(model):
    first, second = model.split([["first"]]).stages
    stages = Stage.on(first, "onnxruntime", (CORES[0],)), Stage.on(second, "tvm", tuple(CORES))
    return Deployment(stages)


@pytest.fixture(scope="module")
def folder(model, deployment, tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    write_split(model, deployment, folder, SplitResults())
    return folder


def test_replicas_and_runtimes_are_written_and_cpu_replicas_share_a_file(folder):
    document = manifest_file.read(folder)
    assert [stage.runtime for stage in document.stages] == ["onnxruntime", "tvm"]
    devices = [[replica.device for replica in stage.replicas] for stage in document.stages]
    assert devices == [[CORES[0]], CORES]
    assert {replica.file for stage in document.stages for replica in stage.replicas} == {None}
    assert sorted(file.name for file in folder.glob("stage*.so")) == ["stage1.so"]


def test_replicas_are_loaded_and_verified(model, folder):
    items = model.items(8)
    with autosplit.load(folder) as pipeline:
        assert pipeline.replicas == (1, 2)
        assert compare(pipeline.run(items), model.expected(items)).equal
    assert verify(folder).accuracy.equal


def test_no_replica_is_busier_than_the_whole_time(folder):
    result = bench(folder, Budget(seconds=0.3, items=24))
    assert list(map(len, result.busy_ms)) == [1, 2]
    assert max(result.busy_ms[1]) <= result.period.median
    assert [list(map(str, places)) for places in result.devices] == [[CORES[0]], CORES]


@pytest.mark.integration
def test_replicas_of_another_target_have_a_file_of_their_own(branches, deployment, tmp_path):
    other = str(device.Cores(device.available()[:2]))
    targets = {other: "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64"}
    kernels = replace(branches.kernels, targets=targets)
    model = replace(branches, runtime_name=AUTO, kernels=kernels)
    first, second = deployment.stages
    devices = (CORES[0], other, CORES[1])
    mixed = Deployment((first, Stage.on(second.ops, "tvm", devices)))
    write_split(model, mixed, tmp_path, SplitResults())
    document = manifest_file.read(tmp_path)
    files = [replica.file for replica in document.stages[1].replicas]
    assert files == [None, "stage1_1.so", None]
    assert document.stages[1].replicas[1].target != document.stages[1].replicas[0].target
    items = model.items(6)
    with autosplit.load(tmp_path) as pipeline:
        assert compare(pipeline.run(items), model.expected(items)).equal
