"""The line through measured round trips."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.errors import GraphError
from autosplit.graph import Op, build
from autosplit.hardware import devices, link_cost
from autosplit.hardware.costs import cost_model
from autosplit.hardware.results import LinkCost, Profile
from autosplit.planner import plan

SIZES = (1 << 10, 1 << 14, 1 << 18, 1 << 22)


@given(st.floats(1e2, 1e8), st.floats(0, 100))
def test_a_line_is_found_again(bandwidth, latency):
    found = link_cost.fit([(size, latency + size / bandwidth) for size in SIZES])
    assert found == pytest.approx((bandwidth, latency), rel=1e-3, abs=1e-6)


@given(st.lists(st.floats(1e-3, 1e3), min_size=4, max_size=4))
def test_no_noise_makes_a_cost_negative(times):
    bandwidth, latency = link_cost.fit(list(zip(SIZES, times, strict=True)))
    assert bandwidth > 0
    assert 0 <= latency < math.inf
    assert latency > 0 or bandwidth < math.inf


def test_the_memory_of_this_machine_is_measured_too():
    found = link_cost.measure("here", devices.along(1)[0].runtime(), lambda: None)
    assert found.device == "here"
    assert found.latency_ms + (1 << 22) / found.bandwidth > 0


def chain(ops):
    names = [f"t{i}" for i in range(ops + 1)]
    return build(
        "chain",
        [Op(f"op{i}", "k", (), (names[i],), (names[i + 1],)) for i in range(ops)],
        dict.fromkeys(names, ((1000,), "float32", 4000)),
        names[:1],
        names[-1:],
    )


def profiles(*rows):
    return [Profile(f"d{i}", tuple(row), (0.0,) * len(row)) for i, row in enumerate(rows)]


def test_a_slow_device_gets_the_smaller_share():
    found = plan(cost_model(chain(10), profiles([4.0] * 10, [1.0] * 10)), 2)
    assert list(map(len, found.stages)) == [2, 8]


def test_the_link_of_a_device_counts_against_it():
    links = [LinkCost("near"), LinkCost("far", bandwidth=4000.0, latency_ms=1.0, call_ms=0.5)]
    costs = cost_model(chain(10), profiles([1.0] * 10, [1.0] * 10), links)
    found = plan(costs, 2)
    assert list(map(len, found.stages)) == [7, 3]
    assert found.loads == pytest.approx((7.0, 3 + 2.0 + 2.0 + 0.5))


def test_alike_devices_share_a_row():
    costs = cost_model(chain(3), profiles([1.0] * 3, [1.0] * 3), [LinkCost("a"), LinkCost("b")])
    assert costs.devices is None


def test_an_op_that_a_device_cannot_run_lies_on_another():
    costs = cost_model(chain(4), profiles([1.0, math.inf, 1.0, 1.0], [1.0] * 4))
    assert plan(costs, 2).stages[0] == (0,)


def test_a_time_that_is_none_is_refused():
    with pytest.raises(GraphError):
        cost_model(chain(1), profiles([math.nan]))
