"""The line through measured round trips."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.hardware.devices import device
from autosplit.hardware.measurement.results import LinkCost
from autosplit.hardware.profiling import timing, transfer_costs

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


class Clock:
    """A clock that goes on by what work takes."""

    def __init__(self, monkeypatch, takes):
        self.now, self.takes, self.calls = 0.0, takes, 0
        monkeypatch.setattr(timing.time, "perf_counter", lambda: self.now)

    def work(self):
        self.now += self.takes(self.calls)
        self.calls += 1


def test_the_first_call_warms_up_and_nine_count(monkeypatch):
    clock = Clock(monkeypatch, lambda call: 5.0 if call == 0 else 0.001 * call)
    assert transfer_costs.median_ms(clock.work) == pytest.approx(5.0)  # the fifth of nine
    assert clock.calls == 10


def test_a_slow_link_is_tried_twice_and_no_more(monkeypatch):
    clock = Clock(monkeypatch, lambda call: 10.0)
    assert transfer_costs.median_ms(clock.work) == pytest.approx(10_000.0)
    assert clock.calls == 3


def test_a_way_is_half_a_round_trip_and_a_call(monkeypatch):
    monkeypatch.setattr(
        transfer_costs, "_round_trip_ms", lambda tvm_device, size: 2 * (3.0 + size / 1000)
    )
    monkeypatch.setattr(transfer_costs, "median_ms", lambda call: 0.25)
    link = transfer_costs.measure("far", None, lambda: None)
    assert link == LinkCost("far", pytest.approx(1000.0), pytest.approx(3.25), 0.25)


def test_times_that_fall_with_the_size_have_no_bandwidth_and_their_mean_as_latency():
    assert transfer_costs.fit([(size, 1.0 / size) for size in SIZES])[0] == math.inf
    assert transfer_costs.fit([(1000, 2.0), (2000, 1.0)]) == (math.inf, pytest.approx(4 / 3))


def test_a_line_that_would_begin_below_zero_begins_at_zero():
    bandwidth, latency = transfer_costs.fit([(1000, 0.5), (10_000, 10.0)])
    assert latency == 0.0
    assert 1000 <= bandwidth <= 2000
