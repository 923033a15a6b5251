"""What is refused before any actor is started."""

import sys
from types import SimpleNamespace

import pytest

from autosplit.deploy.cluster.on_ray import run_on_ray
from autosplit.errors import MachineError


def test_without_ray_its_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MachineError, match=r"pip install 'autosplit\[ray\]'"):
        run_on_ray(None, None, None)


@pytest.mark.parametrize("variable", [False, True])
def test_a_cluster_that_is_not_there_is_named_at_once(monkeypatch, variable):
    ray = SimpleNamespace(is_initialized=lambda: False, init=lambda **_: pytest.fail("waits"))
    monkeypatch.setitem(sys.modules, "ray", ray)
    if variable:
        monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    text = r"no Ray cluster at '127\.0\.0\.1:1' \(.*refused\); start one with `ray start --head`"
    with pytest.raises(MachineError, match=text):
        run_on_ray(None, None, None, address=None if variable else "127.0.0.1:1")
