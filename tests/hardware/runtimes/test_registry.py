"""Runtimes by their names, and the devices that they take."""

from dataclasses import replace

import pytest

from autosplit.errors import ConfigError
from autosplit.hardware.devices.device import Cores, Cuda, Rpc
from autosplit.hardware.execution.wiring import StagePorts
from autosplit.hardware.runtimes.registry import RUNTIMES, runtime_class

ELSEWHERE = [Cuda(0), Rpc("h", 1)]


@pytest.fixture
def onnxruntime(branches):
    pytest.importorskip("onnxruntime")
    return replace(branches, runtime_name="onnxruntime").runtime


def test_local_cores_run_in_onnxruntime(onnxruntime):
    onnxruntime.check([Cores((1, 2))])
    assert onnxruntime.can_run(Cores((1, 2)))


@pytest.mark.parametrize("device", ELSEWHERE)
def test_other_devices_are_refused_by_name_with_the_runtime_that_takes_them(onnxruntime, device):
    assert not onnxruntime.can_run(device)
    with pytest.raises(ConfigError, match=f"not on '{device}'; use runtime tvm"):
        onnxruntime.check([device])


@pytest.mark.parametrize("device", ELSEWHERE)
def test_a_stage_for_another_device_is_refused_before_its_file_is_read(tmp_path, device):
    file, ports = tmp_path / "absent.onnx", StagePorts((), (), ())
    with pytest.raises(ConfigError, match=f"not on '{device}'"):
        runtime_class("onnxruntime").load_stages(file, "", ports, [device])


def test_runtimes_have_stage_files_of_different_kinds():
    suffixes = {name: runtime_class(name).suffix for name in RUNTIMES}
    assert (suffixes["tvm"], suffixes["onnxruntime"]) == (".so", ".onnx")
