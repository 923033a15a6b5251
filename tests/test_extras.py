"""Optional packages are imported, or named with the extra that installs them."""

import sys

import pytest

from autosplit.errors import MachineError
from autosplit.extras import require


def test_a_package_that_is_installed_is_returned():
    assert require("json.decoder", "any") is sys.modules["json.decoder"]


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MachineError, match=r"onnx .*; pip install 'autosplit\[onnx\]'") as error:
        require("onnx", "onnx")
    assert error.value.exit_code == 3
