"""Kernels for a GPU, and its target; `test_every_device.py` runs on one that is there."""

from __future__ import annotations

import pytest

from autosplit.hardware.codegen import schedules
from autosplit.hardware.codegen.target import foreign_triple, target_of, target_on
from autosplit.hardware.devices import device as devices


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
