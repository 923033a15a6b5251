"""The reference of a model, by the format it was read from."""

from pathlib import Path

import pytest

from autosplit.errors import ModelError
from autosplit.frontend.source import SourceModel
from autosplit.hardware.measurement import reference
from autosplit.hardware.measurement.reference import (
    OnnxruntimeReference,
    TorchReference,
    UnfusedReference,
)


def source(form):
    return SourceModel("net", None, (), (), {}, frozenset(), (), (), format=form)


@pytest.mark.parametrize(
    ("form", "path", "expected"),
    [
        ("onnx", Path("a.onnx"), OnnxruntimeReference(Path("a.onnx"))),
        ("onnx", None, UnfusedReference(source("onnx"), "llvm")),
        ("relax", Path("a.py"), UnfusedReference(source("relax"), "llvm")),
        ("relax", None, UnfusedReference(source("relax"), "llvm")),
        ("torch", Path("a.pt2"), TorchReference(source("torch"))),
        ("torch", None, TorchReference(source("torch"))),
    ],
)
def test_the_reference_is_the_program_that_the_model_comes_from(form, path, expected):
    assert reference.reference_of(source(form), path, "llvm") == expected


def test_references_have_names():
    names = [
        reference.reference_of(source(form), Path("a"), None).name
        for form in ("onnx", "relax", "torch")
    ]
    assert names == ["onnxruntime", "TVM without fusion", "torch"]


def test_an_onnx_file_is_not_read_for_its_reference(tmp_path):
    assert reference.reference_of_file(tmp_path / "absent.onnx", {}) == OnnxruntimeReference(
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
    assert reference.reference_of_file(tmp_path / "a.pt2", {"x": (1,)}).name == "torch"
    assert read == [(tmp_path / "a.pt2", {"x": (1,)})]


def test_a_model_that_onnxruntime_cannot_read_is_a_model_error(tmp_path):
    pytest.importorskip("onnxruntime")
    with pytest.raises(ModelError, match="onnxruntime cannot load the model"):
        OnnxruntimeReference(tmp_path / "absent.onnx").open()
