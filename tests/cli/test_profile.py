import sys
from unittest.mock import Mock

import pytest

from autosplit import api
from autosplit.cli import main
from autosplit.graph import op_title
from autosplit.hardware import compiled_model
from autosplit.hardware.devices import device as devices
from autosplit.hardware.measurement.results import Profile
from autosplit.hardware.runtimes.registry import EXACT, is_installed
from tests import nets
from tests.build import node, onnx_model

QUICK = ["--seconds", "0.05"]


@pytest.fixture
def net(save):
    return api.load_model(save(nets.products()))


def test_every_op_has_a_time_which_is_kept_until_it_is_forced(as_text, as_json, net):
    def profile(*more):
        return as_json("profile", net.path, *QUICK, *more)

    document = profile("--force")
    assert [op["name"] for op in document["ops"]] == [op.name for op in net.graph.ops]
    assert all(op["ms"] > 0 for op in document["ops"])
    assert document["total_ms"] == pytest.approx(sum(op["ms"] for op in document["ops"]))
    assert document["device"] == str(devices.along(1)[0])
    assert profile() == document
    shown = as_text("profile", net.path, *QUICK)
    assert f"{len(net.graph.ops)} fused ops" in shown
    assert all(op_title(op) in shown for op in net.graph.ops)
    require_shares(rows := [line.split() for line in shown.splitlines()[2:]])
    assert max(len(row[3].replace(".", "").lstrip("0")) for row in rows) <= 3
    assert profile("--force") != document


def test_a_disturbed_profile_is_marked(capsys, branches, monkeypatch, as_json):
    times = (1.0,) * len(branches.graph.ops)
    disturbed = {"load": 0.66, "disturbances": ("loud",), "measured_at": "noon"}
    profiles = Mock(return_value=[Profile("cores:0", times, times, "tvm", **disturbed)])
    monkeypatch.setattr(compiled_model.CompiledModel, "profiles", profiles)
    document = as_json("profile", branches.path)
    for each in (document, *document["profiles"]):
        assert (each["load"], each["disturbances"], each["measured_at"]) == (0.66, ["loud"], "noon")
    assert main(["profile", str(branches.path)]) == 0
    assert "was disturbed: loud (measured at noon" in capsys.readouterr().err


def require_shares(rows):
    """The third column is the share of each op, the largest first."""
    shares = [float(row[2]) for row in rows]
    assert shares == sorted(shares, reverse=True)
    # OpenVINO counts whole microseconds, and all ops of a tiny net may take none.
    assert not any(shares) or sum(shares) == pytest.approx(100, abs=1)


def test_every_runtime_and_number_of_threads_has_its_times(as_text, net, as_json):
    runtimes = {name for name in EXACT if is_installed(name)}
    cores = [str(devices.Cores(devices.available()[:count])) for count in (1, 2)]
    words = ["profile", net.path, *QUICK, "--runtime", "auto"]
    words += [word for device in cores for word in ("--device", device)]
    document = as_json(*words)
    profiles = {(p["runtime"], p["device"]): p["total_ms"] for p in document["profiles"]}
    assert profiles.keys() == {(runtime, device) for runtime in runtimes for device in cores}
    assert document["total_ms"] == min(profiles.values())
    shown = as_text(*words)
    assert all(name in shown for name in (*runtimes, *cores, "(op0)"))
    require_shares([line.split() for line in shown.splitlines()[3:]])


def test_what_is_not_installed_is_left_out_or_an_error(capsys, net, monkeypatch):
    monkeypatch.setattr(compiled_model, "is_installed", lambda name: name == "tvm")
    words = ["profile", str(net.path), *QUICK, "--runtime"]
    assert main([*words, "auto"]) == 0
    assert "onnxruntime is left out: it is not installed" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "openvino", None)
    assert main([*words, "openvino"]) == 3


@pytest.mark.parametrize("more", [[], ["-f", "json"]])
def test_a_model_that_computes_nothing_has_a_profile(as_text, save, more):
    for op in ("Flatten", "Identity"):
        assert as_text("profile", save(onnx_model([node(op, "x", "y")])), *QUICK, *more)
