"""Runtimes by their names, and the devices they take."""

import pytest

from autosplit.errors import ConfigError
from autosplit.hardware.devices.device import Cores, Cuda, Rpc
from autosplit.hardware.runtimes import runtime


def test_local_cores_are_the_device_itself():
    assert runtime.local_cores("onnxruntime", Cores((1, 2))) == Cores((1, 2))


@pytest.mark.parametrize("device", [Cuda(0), Rpc("h", 1)])
def test_another_device_names_the_runtime_the_device_and_the_remedy(device):
    with pytest.raises(
        ConfigError,
        match=f"'onnxruntime' runs on local cores, not on '{device}'; use runtime tvm there",
    ):
        runtime.local_cores("onnxruntime", device)


def test_an_onnx_stage_for_another_device_is_refused_before_its_file_is_read(tmp_path):
    pytest.importorskip("onnxruntime")
    with pytest.raises(ConfigError, match="runs on local cores"):
        runtime.load_stage("onnxruntime", tmp_path / "absent.onnx", "", (), (), Rpc("h", 1))


@pytest.mark.parametrize(
    ("runtime_name", "kind", "suffix"),
    [("tvm", "TvmRuntime", ".so"), ("onnxruntime", "OnnxruntimeRuntime", ".onnx")],
)
def test_each_runtime_has_its_class_and_suffix(branches, runtime_name, kind, suffix):
    pytest.importorskip("onnxruntime")
    found = runtime.runtime_of(branches, runtime_name)
    assert (type(found).__name__, found.suffix) == (kind, suffix)
