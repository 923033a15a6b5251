import math
import os
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.errors import ConfigError, MachineError
from autosplit.graph import State
from autosplit.hardware.devices.device import Cores
from autosplit.hardware.measurement.results import LinkCost, Profile
from autosplit.hardware.profiling import transfer_costs
from autosplit.hardware.profiling.cost_table import cost_table, device_kinds, place_regions, slowed
from autosplit.hardware.profiling.timing import on_cores
from autosplit.planner import Option, Question, Row, Stage, evaluate, partition
from tests.hardware.fakes import CHAIN, graph


def profiles(*rows):
    zeros = (0.0,) * len(rows[0])
    return [Profile(f"d{i}", row, zeros, "tvm") for i, row in enumerate(rows)]


def stages(costs, *parts):
    """Stages of ops, each in a row of the costs."""
    return [Stage(ops, (Option(costs.rows[row].row),)) for ops, row in parts]


@pytest.fixture(autouse=True)
def four(monkeypatch):
    monkeypatch.setattr("autosplit.hardware.devices.device.available", lambda: (0, 1, 2, 3))


@pytest.mark.parametrize(
    ("region_devices", "free"),
    [
        ({}, [0, 1, 2, 3]),
        ({"npu": "cores:0"}, [0]),
        ({"npu": "cores:1-2"}, [1]),  # however it is spelled
        ({"npu": "cores:3"}, [2, 3]),  # two stages share it
        ({"other": "cores:0"}, [0, 1, 2, 3]),  # a backend without ops here
    ],
)
def test_ops_of_a_backend_run_on_its_device_only(region_devices, free):
    devices = ["cores:0", "cores:1,2", "cores:3", "cores:3"]
    alike = profiles(*[(1.0, 2.0, 3.0)] * 4)
    placed = place_regions(alike, {"npu": [1]}, region_devices, devices)
    times = [(1.0, 2.0 if d in free else math.inf, 3.0) for d in range(4)]
    assert [profile.op_ms for profile in placed] == times


def test_a_device_that_is_none_of_the_pipeline_is_named():
    text = "'npu' are for device 'cores:2', which is not one of cores:0, cores:1; name"
    with pytest.raises(ConfigError, match=text):
        place_regions(profiles((1.0,)), {"npu": [0]}, {"npu": "cores:2"}, ["cores:0", "cores:1"])


@pytest.mark.parametrize(
    ("links", "kinds"),
    [((), 1), ([LinkCost("a"), LinkCost("b")], 1),
     *(([LinkCost("a"), LinkCost("b", **cost)], 2)
       for cost in ({"call_ms": 0.5}, {"latency_ms": 0.5}, {"bandwidth": 32.0}))],
)  # fmt: skip
def test_a_link_that_costs_anything_tells_devices_apart(links, kinds):
    costs = cost_table(CHAIN, profiles((1.0, 2.0, 3.0), (1.0, 2.0, 3.0)), links)
    assert len(costs.kinds) == kinds


RUNTIME_TIMES = {"slow": (2.0, 2.0, 2.0), "quick": (1.0, 1.0, 1.0)}


def test_each_runtime_has_its_times_and_its_groups():
    rows = [Profile("cores:0", times, (0.0,) * 3, name) for name, times in RUNTIME_TIMES.items()]
    costs = cost_table(CHAIN, rows, keep_together={"quick": [[0, 1]]})
    assert [row.row for row in costs.rows] == [Row("cores:0", "slow"), Row("cores:0", "quick")]
    assert evaluate(costs, stages(costs, ((0,), 1), ((1, 2), 0))).loads == (math.inf, 4.0)
    assert evaluate(costs, stages(costs, ((0, 1), 1), ((2,), 1))).loads == (2.0, 1.0)


def test_a_runtime_that_computes_nothing_is_left_out():
    none = Profile("cores:0", (math.inf,) * 3, (0.0,) * 3, "none", "it is not installed")
    one = Profile("cores:0", (1.0, 2.0, 3.0), (0.0,) * 3, "one")
    assert [row.row.runtime for row in cost_table(CHAIN, [none, one]).rows] == ["one"]
    with pytest.raises(ConfigError, match="it is not installed"):
        cost_table(CHAIN, [none])


def test_the_time_of_a_call_counts_where_runtimes_compete():
    rows = [
        Profile("cores:0", times, (0.0,) * 3, name, call_ms=call)
        for (name, times), call in zip(RUNTIME_TIMES.items(), (0.0, 4.0), strict=True)
    ]
    best = partition(cost_table(CHAIN, rows), Question.of_split(2, "cores:0"))
    assert [stage.runtime for stage in best.stages] == ["slow", "slow"]
    assert best.loads == (2.0, 4.0)
    assert cost_table(CHAIN, rows[1:]).rows[0].overhead == 0.0


def test_a_measured_net_pays_links_for_inputs_tensors_and_outputs():
    fork = graph([("a", ["x"]), ("b", ["a", "x"])], ["x"], ["a", "b"])
    links = [LinkCost("d0", 32.0, latency_ms=0.5, call_ms=0.25), LinkCost("d1", 8.0)]
    costs = cost_table(fork, profiles((1.0, 9.0), (9.0, 2.0)), links)
    plan = evaluate(costs, stages(costs, ((0,), 0), ((1,), 1)))
    # Each tensor has 16 bytes; a goes out once though it is an output as well.
    assert plan.loads == (0.25 + 1 + 2 * 1.0, 2 + 3 * 2.0)
    assert plan.bytes_moved == 16
    assert plan.memory == (16 + 16, 16 + 16)


def test_states_stay_on_their_device_but_not_on_that_of_a_server():
    net = graph([("a", ["x", "h"]), ("b", ["a"])], ["x", "h"], ["b", "a"])
    net, size = replace(net, states=(State("h", "next", "a"),)), net.tensors["h"].bytes
    loads = []
    for device in ("ray:n/cores:0", "rpc:host:1"):
        costs = cost_table(net, profiles((1.0, 2.0)), [LinkCost(device, bandwidth=1.0)])
        loads += evaluate(costs, stages(costs, ((0, 1), 0))).loads
    assert loads == [3.0 + 2 * size, 3.0 + 4 * size]
    costs = cost_table(net, profiles((1.0, 2.0)), streams=3)
    assert evaluate(costs, stages(costs, ((0, 1), 0))).memory == (4 * size,)  # x, and h a stream


def test_places_of_one_name_keep_their_own_limits_of_memory():
    alike = [replace(profile, device="cores:0") for profile in profiles((1.0,), (1.0,), (1.0,))]
    kinds = device_kinds(alike, memory=[8.0, 1.0, 8.0])
    assert kinds[0] == kinds[2] != kinds[1]


def test_devices_that_share_a_core_are_as_many_times_as_slow_as_there_are():
    devices = ["cores:0", "cores:0,1", "cores:1", "cores:2"]
    changed = slowed(profiles(*[(1.0, 2.0)] * 4), devices)
    assert [profile.op_ms[0] for profile in changed] == [2.0, 3.0, 2.0, 1.0]


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


def test_a_way_is_half_a_round_trip_and_a_call(monkeypatch):
    monkeypatch.setattr(transfer_costs, "_round_trip_ms", lambda _, size: 2 * (3.0 + size / 1000))
    monkeypatch.setattr(transfer_costs, "median_ms", lambda call: 0.25)
    link = transfer_costs.measure("far", None, lambda: None)
    assert link == LinkCost("far", pytest.approx(1000.0), pytest.approx(3.25), 0.25)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system pins no threads")
def test_a_core_that_is_gone_is_named():
    with pytest.raises(MachineError, match="device 'cores:4000' is not there any more"):
        on_cores(Cores((4000,)), lambda: None)
