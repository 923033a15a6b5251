import json

import pytest

from autosplit.cli import main
from autosplit.hardware.codegen import toolchain
from autosplit.hardware.devices import device


@pytest.fixture
def examined(capsys):
    """The exit code and the checks by name."""

    def run():
        code = main(["doctor", "-f", "json"])
        document = json.loads(capsys.readouterr().out)
        assert document["ok"] == (code == 0)
        return code, {c["name"]: c for c in document["checks"]}

    return run


def test_a_machine_that_has_everything_is_fine(examined):
    code, checks = examined()
    assert code == 0
    assert all(c["ok"] and not c["remedy"] for c in checks.values() if c["needed"])
    assert {"python", "tvm", "numpy", "linker", "cores", "cache"} <= set(checks)


def test_a_wrong_pair_is_exit_code_3_with_the_remedy(examined, pretend):
    pretend(apache_tvm_ffi="0.1.15.post2")
    code, checks = examined()
    assert code == 3
    assert checks["tvm"]["remedy"].endswith("pip install 'apache-tvm-ffi>=0.1.14.post0,<0.1.15'")


def test_a_missing_package_is_exit_code_3_only_where_it_is_needed(examined, pretend, without):
    pretend(waitress=None)
    code, checks = examined()
    assert (code, checks["waitress"]["remedy"]) == (0, "pip install 'autosplit[dashboard]'")
    pretend(networkx=None)
    code, checks = examined()
    assert (code, checks["networkx"]["remedy"]) == (3, "pip install networkx")
    pretend(platformdirs=None)
    without("platformdirs")  # which the check of the cache imports
    code, checks = examined()
    assert (code, checks["platformdirs"]["remedy"]) == (3, "pip install platformdirs")


def test_a_cache_that_cannot_be_written_is_exit_code_3(examined, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("AUTOSPLIT_CACHE", str(tmp_path / "file" / "cache"))
    code, checks = examined()
    assert code == 3
    assert "AUTOSPLIT_CACHE" in checks["cache"]["remedy"]


@pytest.mark.parametrize(
    ("module", "name", "value", "check", "says"),
    [
        (toolchain, "_driver", None, "linker", "install gcc or clang"),
        (device, "can_pin", False, "cores", "cannot be kept on a core"),
    ],
)
def test_what_is_only_useful_has_a_remedy(examined, monkeypatch, module, name, value, check, says):
    monkeypatch.setattr(module, name, lambda: value)
    code, checks = examined()
    assert (code, says in checks[check]["remedy"]) == (0, True)
