import math
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.errors import MachineError
from autosplit.hardware.devices import device
from autosplit.hardware.devices.device import Cores
from autosplit.hardware.measurement.results import LinkCost
from autosplit.hardware.profiling import transfer_costs
from autosplit.hardware.profiling.timing import on_cores

SIZES = (1 << 10, 1 << 14, 1 << 18, 1 << 22)


@given(st.floats(1e2, 1e8), st.floats(0, 100))
def test_a_line_is_found_again(bandwidth, latency):
    line = transfer_costs.fit([(size, latency + size / bandwidth) for size in SIZES])
    assert line == pytest.approx((bandwidth, latency), rel=1e-3, abs=1e-6)


@given(st.lists(st.floats(1e-3, 1e3), min_size=4, max_size=4))
def test_no_noise_makes_a_cost_negative(times):
    bandwidth, latency = transfer_costs.fit(list(zip(SIZES, times, strict=True)))
    assert bandwidth > 0
    assert 0 <= latency < math.inf
    assert latency > 0 or bandwidth < math.inf


def test_the_memory_of_this_machine_is_measured_too():
    link = transfer_costs.measure("here", device.along(1)[0].tvm_device(), lambda: None)
    assert link.device == "here"
    assert link.latency_ms + (1 << 22) / link.bandwidth > 0


def test_a_way_is_half_a_round_trip_and_a_call(monkeypatch):
    monkeypatch.setattr(transfer_costs, "_round_trip_ms", lambda _, size: 2 * (3.0 + size / 1000))
    monkeypatch.setattr(transfer_costs, "median_ms", lambda call: 0.25)
    link = transfer_costs.measure("far", None, lambda: None)
    assert link == LinkCost("far", pytest.approx(1000.0), pytest.approx(3.25), 0.25)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system pins no threads")
def test_a_core_that_is_gone_is_named():
    with pytest.raises(MachineError, match="device 'cores:4000' is not there any more"):
        on_cores(Cores((4000,)), lambda: None)
