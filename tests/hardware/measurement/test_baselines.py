"""The ways to run a model whole, from the devices of a pipeline."""

import pytest

from autosplit.hardware.devices.device import apart, parse
from autosplit.hardware.measurement.baselines import ways


@pytest.fixture(autouse=True)
def four(monkeypatch):
    monkeypatch.setattr("autosplit.hardware.devices.device.available", lambda: (0, 1, 2, 3, 8))


@pytest.mark.parametrize(
    ("devices", "found"),
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
def test_cores_together_each_other_device_alone_and_a_copy_on_each(devices, found):
    got = ways(apart(list(map(parse, devices))))
    assert {name: [str(d) for d in on] for name, on in got} == found
    assert [name for name, _ in got] == list(found)
