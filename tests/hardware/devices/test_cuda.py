"""A CUDA device of this machine, and kernels for one where there is none."""

from __future__ import annotations

import pytest

from autosplit.errors import MachineError
from autosplit.hardware.codegen import schedules
from autosplit.hardware.codegen.target import foreign_triple, target_of, target_on
from autosplit.hardware.devices import device as devices
from autosplit.hardware.measurement.parity import compare


def absent() -> str:
    """Why nothing runs on a GPU here; empty where something does."""
    import tvm

    if not tvm.runtime.enabled("cuda"):
        return "this TVM was built without CUDA"
    return "" if tvm.cuda(0).exist else "there is no CUDA device here"


gpu = pytest.mark.skipif(bool(absent()), reason=absent())
here = str(devices.along(1)[0])


@pytest.mark.skipif(not absent(), reason="there is a CUDA device here")
def test_a_gpu_that_is_not_there_is_named_with_the_remedy(branches):
    with pytest.raises(MachineError, match=r"device 'cuda:0' .*(autosplit doctor|nvidia-smi)"):
        branches.split([["first"]]).pipeline(["cuda:0", here])


def test_every_kernel_gets_threads_on_a_gpu(branches):
    scheduled = schedules.schedule(
        branches.lowered.kernels,
        target_of('{"kind": "cuda", "arch": "sm_80", "host": "llvm"}'),
        None,
    )
    assert all("thread" in str(function) for function in scheduled.values())


def test_a_gpu_of_a_server_has_the_target_that_is_given():
    host = '{"kind": "llvm", "mtriple": "aarch64-linux-gnu"}'
    text = f'{{"kind": "cuda", "arch": "sm_87", "host": {host}}}'
    device = devices.Cuda(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices.Cuda, "tvm_device", lambda self: None)
        target = target_on(device, text, target_of())
        assert target.attrs["arch"] == "sm_87"
        assert foreign_triple(target) in ("aarch64-linux-gnu", None)
        assert (
            target_on(device, '{"kind": "cuda", "arch": "sm_87"}', target_of()).host.kind.name
            == "llvm"
        )


@gpu
@pytest.mark.parametrize("along", [["cuda:0", here], [here, "cuda:0"], ["cuda:0", "cuda:0"]])
def test_stages_on_a_gpu_compute_what_the_whole_does(branches, along):
    items = branches.items(3)
    with branches.split([["first"]]).pipeline(along) as pipeline:
        assert compare(pipeline.run(items), branches.expected(items)).equal


@gpu
def test_a_gpu_is_profiled_and_its_link_measured(branches):
    device = devices.parse("cuda:0")
    assert sum(branches.profile(device, 0.2, force=True).op_ms) > 0
    assert 0 < branches.links([device])[0].bandwidth < float("inf")


@gpu
def test_a_stage_for_a_gpu_is_exported_and_loaded(branches, tmp_path):
    import autosplit

    split = branches.split([["first"]])
    split.export(tmp_path, ["cuda:0", here])
    items = branches.items(2)
    with autosplit.load(tmp_path) as pipeline:
        assert compare(pipeline.run(items), branches.expected(items)).equal
