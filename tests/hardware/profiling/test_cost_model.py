"""Ops that belong to one device, in the planner's costs."""

import math

import pytest

from autosplit.errors import ConfigError
from autosplit.hardware.measurement.results import LinkCost, Profile
from autosplit.hardware.profiling.cost_model import cost_model, place_regions
from autosplit.planner import CostModel, evaluate, plan
from tests.hardware.fakes import graph

CHAIN = graph([("a", ["x"]), ("b", ["a"]), ("c", ["b"])], ["x"], ["c"])
ALIKE = CostModel("c", ("a", "b", "c"), (0, 1, 2), ((1.0, 2.0, 3.0),))


@pytest.fixture(autouse=True)
def four(monkeypatch):
    monkeypatch.setattr("autosplit.hardware.devices.device.available", lambda: (0, 1, 2, 3))


@pytest.mark.parametrize(
    ("region_devices", "free"),
    [
        ({}, None),
        ({"npu": "cores:0"}, [0]),
        ({"npu": "cores:1-2"}, [1]),  # however it is spelled
        ({"npu": "cores:3"}, [2, 3]),  # two stages share it
        ({"other": "cores:0"}, [0, 1, 2, 3]),  # a backend without ops here
    ],
)
def test_ops_of_a_backend_run_on_its_device_only(region_devices, free):
    devices = ["cores:0", "cores:1,2", "cores:3", "cores:3"]
    costs = place_regions(ALIKE, {"npu": [1]}, region_devices, devices)
    if free is None:
        assert costs is ALIKE
        return
    assert [row[0] for row in costs.times] == [1.0] * 4
    assert [d for d, row in enumerate(costs.times) if row[1] < math.inf] == free
    assert all(row[1] == 2.0 for d, row in enumerate(costs.times) if d in free)


def test_the_plan_follows():
    costs = place_regions(ALIKE, {"npu": [0]}, {"npu": "cores:1"}, ["cores:0", "cores:1"])
    assert plan(costs, 2, allow_empty=True).stages == ((), (0, 1, 2))


def test_a_device_that_is_none_of_the_pipeline_is_named():
    with pytest.raises(
        ConfigError,
        match="'npu' are for device 'cores:2', which is not one of cores:0, cores:1; name",
    ):
        place_regions(ALIKE, {"npu": [0]}, {"npu": "cores:2"}, ["cores:0", "cores:1"])


def profiles(*rows):
    return [Profile(f"d{i}", row, (0.0,) * len(row)) for i, row in enumerate(rows)]


@pytest.mark.parametrize(
    ("links", "rows"),
    [
        ((), 1),
        ([LinkCost("a"), LinkCost("b")], 1),
        ([LinkCost("a"), LinkCost("b", call_ms=0.5)], 2),
        ([LinkCost("a"), LinkCost("b", latency_ms=0.5)], 2),
        ([LinkCost("a"), LinkCost("b", bandwidth=32.0)], 2),
    ],
)
def test_a_link_that_costs_anything_tells_devices_apart(links, rows):
    costs = cost_model(CHAIN, profiles((1.0, 2.0, 3.0), (1.0, 2.0, 3.0)), links)
    assert (costs.devices or 1) == rows


def test_each_stage_takes_the_times_of_its_device_and_what_its_link_costs():
    links = [LinkCost("a"), LinkCost("b", bandwidth=32.0, latency_ms=0.25, call_ms=2.0)]
    costs = cost_model(CHAIN, profiles((1.0, 2.0, 3.0), (4.0, 5.0, 6.0)), links)
    transfer_ms = 2 * (16 / 32.0 + 0.25)  # one tensor in and one out
    assert evaluate(costs, [[0], [1, 2]]).loads == pytest.approx(
        (1.0, 5.0 + 6.0 + transfer_ms + 2.0)
    )
    assert evaluate(
        cost_model(CHAIN, profiles((1.0, 2.0, 3.0), (4.0, 5.0, 6.0))), [[0], [1, 2]]
    ).loads == (1.0, 11.0)


def test_what_no_cut_may_part_stays_together():
    costs = cost_model(CHAIN, profiles((3.0, 3.0, 1.0)), keep_together={"tvm": [[0, 1]]})
    assert plan(costs, 2).stages == ((0, 1), (2,))


def test_each_runtime_has_its_times_and_its_groups():
    rows = [Profile("cores:0", times, (0.0,) * 3, name) for name, times in RUNTIME_TIMES.items()]
    costs = cost_model(CHAIN, rows, keep_together={"quick": [[0, 1]]})
    assert [runtime.name for runtime in costs.runtimes] == ["slow", "quick"]
    assert evaluate(costs, [[0], [1, 2]]).runtimes == ("slow", "slow")
    assert evaluate(costs, [[0, 1], [2]]).runtimes == ("quick", "quick")


def test_a_runtime_that_computes_nothing_is_left_out():
    none = Profile("cores:0", (math.inf,) * 3, (0.0,) * 3, "none", "it is not installed")
    one = Profile("cores:0", (1.0, 2.0, 3.0), (0.0,) * 3, "one")
    assert [runtime.name for runtime in cost_model(CHAIN, [none, one]).runtimes] == ["one"]
    with pytest.raises(ConfigError, match="it is not installed"):
        cost_model(CHAIN, [none])


RUNTIME_TIMES = {"slow": (2.0, 2.0, 2.0), "quick": (1.0, 1.0, 1.0)}


def test_the_time_of_a_call_counts_where_runtimes_compete():
    rows = [
        Profile("cores:0", times, (0.0,) * 3, name, call_ms=call)
        for (name, times), call in zip(RUNTIME_TIMES.items(), (0.0, 4.0), strict=True)
    ]
    costs = cost_model(CHAIN, rows)
    assert evaluate(costs, [[0], [1, 2]]).loads == (2.0, 4.0)
    assert evaluate(costs, [[0], [1, 2]]).runtimes == ("slow", "slow")
    assert cost_model(CHAIN, rows[1:]).overheads == (0.0,)
