"""Who judges a model: by what it was read from."""

from pathlib import Path

import pytest

from autosplit.errors import ModelError
from autosplit.frontend.source import SourceModel
from autosplit.hardware.measurement import reference
from autosplit.hardware.measurement.reference import OnnxRuntime, Torch, Unfused


def source(form):
    return SourceModel("net", None, (), (), {}, frozenset(), (), (), format=form)


@pytest.mark.parametrize(
    ("form", "path", "judge"),
    [
        ("onnx", Path("a.onnx"), OnnxRuntime(Path("a.onnx"))),
        ("onnx", None, Unfused(source("onnx"), "llvm")),
        ("relax", Path("a.py"), Unfused(source("relax"), "llvm")),
        ("relax", None, Unfused(source("relax"), "llvm")),
        ("torch", Path("a.pt2"), Torch(source("torch"))),
        ("torch", None, Torch(source("torch"))),
    ],
)
def test_the_judge_is_what_the_model_comes_from(form, path, judge):
    assert reference.judge_of(source(form), path, "llvm") == judge


def test_the_judges_name_themselves():
    names = [
        reference.judge_of(source(form), Path("a"), None).name
        for form in ("onnx", "relax", "torch")
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
        lambda path, shapes: read.append((path, shapes)) or source("torch"),
    )
    monkeypatch.setattr(reference, "target_of", lambda: None)
    assert reference.judge_of_file(tmp_path / "a.pt2", {"x": (1,)}).name == "torch"
    assert read == [(tmp_path / "a.pt2", {"x": (1,)})]


def test_a_model_that_onnxruntime_cannot_read_is_told(tmp_path):
    pytest.importorskip("onnxruntime")
    with pytest.raises(ModelError, match="onnxruntime cannot load the model"):
        OnnxRuntime(tmp_path / "absent.onnx").outputs([])
