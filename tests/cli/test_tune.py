import json
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from autosplit.cli import main, options
from autosplit.hardware.codegen import tuning
from autosplit.hardware.codegen.tuning import Tuned

FOUND = [("conv", 2.0, 0.5, 4, ""), ("relu", 0.25, None, 2, "every sample failed")]


@pytest.fixture
def tuned(monkeypatch):
    """The tuner, which finds the same for any model."""
    tune = Mock(side_effect=lambda *_: (Tuned(*kernel) for kernel in FOUND))
    lowered = SimpleNamespace(kernels={"conv": 1, "relu": 2})
    kernels = SimpleNamespace(target="llvm")
    model = SimpleNamespace(lowered=lowered, kernels=kernels, graph="graph")
    monkeypatch.setattr(options, "load_model", lambda args: model)
    monkeypatch.setattr(tuning, "work_of", lambda graph: {"work of": graph})
    monkeypatch.setattr(tuning, "tune", tune)
    return tune


def test_the_document_has_an_entry_a_kernel_and_progress_is_on_stderr(tuned, capsys):
    assert main(["tune", "net.onnx", "-o", "folder", "-f", "json"]) == 0
    out, err = capsys.readouterr()
    keys = ("kernel", "before_ms", "after_ms", "tried", "note")
    kernels = [dict(zip(keys, kernel, strict=True)) for kernel in FOUND]
    assert json.loads(out) == {"database": "folder", "kernels": kernels}
    first, second = err.splitlines()
    assert first.startswith("1 of 2 conv: 2 to 0.5 ms, about ")
    assert second.startswith("2 of 2 relu: 0.25 to - ms, about 0 s left")


def test_options_reach_the_tuner(tuned, capsys):
    options = ["--samples", "9", "--seed", "5", "--timeout", "1e-9"]
    assert main(["tune", "net.onnx", "-o", "folder"]) == 0
    assert main(["tune", "net.onnx", "-o", "folder", *options]) == 0
    without, arguments = (call.args for call in tuned.call_args_list)
    assert arguments[2:5] == (Path("folder"), 9, 5)
    assert (without[5](), arguments[5]()) == (False, True)
