"""Who judges a model: by what it was read from."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from autosplit.errors import ModelError
from autosplit.hardware.measurement import reference
from autosplit.hardware.measurement.reference import OnnxRuntime, Torch, Unfused


def imported(kind):
    return SimpleNamespace(kind=kind, source="source", program="program")


@pytest.mark.parametrize(
    ("kind", "path", "judge"),
    [
        ("onnx", Path("a.onnx"), OnnxRuntime(Path("a.onnx"))),
        ("onnx", None, Unfused("source", "llvm")),
        ("relax", Path("a.py"), Unfused("source", "llvm")),
        ("relax", None, Unfused("source", "llvm")),
        ("torch", Path("a.pt2"), Torch("program", "source")),
        ("torch", None, Torch("program", "source")),
    ],
)
def test_the_judge_is_what_the_model_comes_from(kind, path, judge):
    assert reference.judge_of(imported(kind), path, "llvm") == judge


def test_the_judges_name_themselves():
    names = [
        reference.judge_of(imported(kind), Path("a"), None).name
        for kind in ("onnx", "relax", "torch")
    ]
    assert names == ["onnxruntime", "TVM without fusion", "torch"]


def test_an_onnx_file_is_not_read_to_know_its_judge(tmp_path):
    assert reference.judge_of_file(tmp_path / "absent.onnx", {}) == OnnxRuntime(
        tmp_path / "absent.onnx"
    )


def test_another_file_is_read_with_the_shapes(monkeypatch, tmp_path):
    read = []
    monkeypatch.setattr(
        reference.importing,
        "read",
        lambda path, shapes: read.append((path, shapes)) or imported("torch"),
    )
    monkeypatch.setattr(reference, "target_of", lambda: None)
    assert reference.judge_of_file(tmp_path / "a.pt2", {"x": (1,)}).name == "torch"
    assert read == [(tmp_path / "a.pt2", {"x": (1,)})]


def test_a_model_that_onnxruntime_cannot_read_is_told(tmp_path):
    pytest.importorskip("onnxruntime")
    with pytest.raises(ModelError, match="onnxruntime cannot load the model"):
        OnnxRuntime(tmp_path / "absent.onnx").outputs([])
