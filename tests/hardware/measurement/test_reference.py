"""The reference of a model, by the format it was read from."""

from pathlib import Path

import pytest

from autosplit.errors import ModelError
from autosplit.frontend.source import SourceModel
from autosplit.hardware.measurement import reference


def source(form):
    return SourceModel("net", None, (), (), {}, frozenset(), (), (), format=form)


@pytest.mark.parametrize(
    ("form", "path", "name"),
    [
        ("onnx", Path("a.onnx"), "onnxruntime"),
        ("onnx", None, "TVM without fusion"),
        ("relax", Path("a.py"), "TVM without fusion"),
        ("relax", None, "TVM without fusion"),
        ("torch", Path("a.pt2"), "torch"),
        ("torch", None, "torch"),
    ],
)
def test_the_reference_is_the_program_that_the_model_comes_from(form, path, name):
    assert reference.reference_of(source(form), path, "llvm").name == name


def test_a_model_that_onnxruntime_cannot_read_is_a_model_error(tmp_path):
    pytest.importorskip("onnxruntime")
    with pytest.raises(ModelError, match="onnxruntime cannot load the model"):
        reference.onnxruntime_reference(tmp_path / "absent.onnx").open()
