"""Op times that add up to what the model takes without a profiler."""

from dataclasses import replace

import pytest

from autosplit.hardware.devices import device as devices
from autosplit.hardware.measurement.results import Profile
from autosplit.hardware.runtimes.onnx.runtime import calibrated
from autosplit.hardware.runtimes.registry import ONNXRUNTIME, OPENVINO

MEASURED = Profile("cores:0", (1.0, 3.0), (0.1, 0.2))


def test_ops_and_a_call_add_up_to_the_whole_model():
    profile = calibrated(MEASURED, whole_ms=9.0, call_ms=1.0)
    assert profile.op_ms == (2.0, 6.0)
    assert profile.spread_ms == (0.2, 0.4)
    assert profile.call_ms == 1.0


def test_ops_keep_some_time_where_a_call_takes_as_long_as_the_model():
    assert min(calibrated(MEASURED, whole_ms=1.0, call_ms=2.0).op_ms) > 0


def test_ops_without_time_stay_without():
    nothing = replace(MEASURED, op_ms=(0.0, 0.0))
    assert calibrated(nothing, whole_ms=1.0, call_ms=0.5).op_ms == (0.0, 0.0)


@pytest.mark.parametrize("runtime", [ONNXRUNTIME, OPENVINO])
def test_a_call_of_a_runtime_takes_time(runtime, branches):
    pytest.importorskip(runtime)
    model = replace(branches, runtime_name=runtime)
    profile = model.profile(devices.along(1)[0], seconds=0.1, force=True)
    assert 0 < profile.call_ms < sum(profile.op_ms)
