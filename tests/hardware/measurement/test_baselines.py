"""The unsplit runs that the devices of a pipeline allow."""

import pytest

from autosplit.hardware.devices.device import parse, with_copies
from autosplit.hardware.measurement.baselines import unsplit_runs


@pytest.fixture(autouse=True)
def four(monkeypatch):
    monkeypatch.setattr("autosplit.hardware.devices.device.available", lambda: (0, 1, 2, 3, 8))


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ([], {}),
        (["cores:2"], {"one core": ["cores:2"]}),
        (
            ["cores:3", "cores:1"],
            {
                "one core": ["cores:1"],
                "all cores": ["cores:1,3"],
                "replicas": ["cores:1", "cores:3"],
            },
        ),
        (
            ["cores:8", "cores:1"],
            {
                "one core": ["cores:1"],
                "all cores": ["cores:1,8"],
                "replicas": ["cores:1", "cores:8"],
            },
        ),
        (
            ["cores:0-1", "cores:1,2"],
            {
                "one core": ["cores:0"],
                "all cores": ["cores:0,1,2"],
                "replicas": ["cores:0", "cores:1", "cores:2"],
            },
        ),
        (["cuda:0"], {"cuda:0": ["cuda:0"]}),
        (
            ["cuda:0", "cores:1", "cuda:0"],
            {"one core": ["cores:1"], "cuda:0": ["cuda:0"], "replicas": ["cores:1", "cuda:0"]},
        ),
        (
            ["rpc:b:1", "rpc:a:1"],
            {"rpc:b:1": ["rpc:b:1"], "rpc:a:1": ["rpc:a:1"], "replicas": ["rpc:b:1", "rpc:a:1"]},
        ),
        (
            ["tracker:t:1/k", "tracker:t:1/k"],
            {"tracker:t:1/k": ["tracker:t:1/k"], "replicas": ["tracker:t:1/k", "tracker:t:1/k"]},
        ),
    ],
)
def test_cores_run_together_other_devices_alone_and_a_replica_on_each(devices, expected):
    runs = unsplit_runs(with_copies(list(map(parse, devices))))
    assert {run.name: list(map(str, run.devices)) for run in runs} == expected
    assert [run.name for run in runs] == list(expected)
