import pytest

from autosplit.hardware.devices.device import parse, with_copies
from autosplit.hardware.measurement.baselines import COMPARED, strongest, unsplit_runs
from autosplit.hardware.measurement.results import Baseline, Spread


@pytest.fixture(autouse=True)
def four(monkeypatch):
    monkeypatch.setattr("autosplit.hardware.devices.device.available", lambda: (0, 1, 2, 3))


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ([], []),
        (["cores:2"], [("1 thread", "cores:2")]),
        (["cores:3", "cores:1"],
         [("1 thread", "cores:1"), ("2 threads", "cores:1,3"),
          ("2 replicas", "cores:1", "cores:3")]),
        (["cores:0-1", "cores:1,2"],
         [("1 thread", "cores:0"), ("3 threads", "cores:0,1,2"),
          ("3 replicas", "cores:0", "cores:1", "cores:2")]),
        (["cuda:0"], [("cuda:0", "cuda:0")]),
        (["cuda:0", "cores:1", "cuda:0"],
         [("1 thread", "cores:1"), ("cuda:0", "cuda:0"), ("2 replicas", "cores:1", "cuda:0")]),
        (["rpc:b:1", "rpc:a:1"],
         [("rpc:b:1", "rpc:b:1"), ("rpc:a:1", "rpc:a:1"), ("2 replicas", "rpc:b:1", "rpc:a:1")]),
        (["tracker:t:1/k", "tracker:t:1/k"],
         [("tracker:t:1/k", "tracker:t:1/k"), ("2 replicas", "tracker:t:1/k", "tracker:t:1/k")]),
    ],
)  # fmt: skip
def test_cores_run_together_other_devices_alone_and_a_replica_on_each(devices, expected):
    runs = unsplit_runs("r", with_copies(list(map(parse, devices))), has_hint=False)
    assert [(run.name.removeprefix("r, "), *map(str, run.devices)) for run in runs] == expected


@pytest.mark.parametrize("count", [1, 2])
def test_a_runtime_with_a_hint_for_throughput_is_asked_for_it_on_several_cores(count):
    runs = unsplit_runs("r", [parse(f"cores:{core}") for core in range(count)], has_hint=True)
    assert [run.name for run in runs if run.by_hint] == ["r, throughput hint"] * (count - 1)


def test_the_fastest_few_compete_in_their_order():
    spreads = [Spread(period, period, period) for period in (5.0, 1.0, 4.0, 2.0, 3.0)]
    names = strongest([Baseline(str(s.median), s, s) for s in spreads])
    assert names == ["1.0", "4.0", "2.0", "3.0"]
    assert len(names) == COMPARED
