"""Sessions of onnxruntime: their options, and the errors of models and items."""

import numpy as np
import pytest

from autosplit.errors import ModelError
from tests.build import node, onnx_model
from tests.nets import onnxruntime_outputs


def test_an_unreadable_model_is_a_model_error(tmp_path):
    pytest.importorskip("onnxruntime")
    (tmp_path / "net.onnx").write_bytes(b"no model")
    with pytest.raises(ModelError, match="onnxruntime cannot load the model"):
        onnxruntime_outputs(tmp_path / "net.onnx", [])


def test_an_unreadable_model_prints_nothing(capfd):
    pytest.importorskip("onnxruntime")
    model = onnx_model([node("Fancy", "x", "y")]).SerializeToString()
    with pytest.raises(ModelError, match="onnxruntime cannot load the model"):
        onnxruntime_outputs(model.replace(b"Fancy", b"F\xd5ncy"), [])
    assert capfd.readouterr() == ("", "")


def test_an_item_that_onnxruntime_refuses_is_a_model_error():
    pytest.importorskip("onnxruntime")
    model = onnx_model([node("Relu", "x", "y")]).SerializeToString()
    with pytest.raises(ModelError, match="onnxruntime cannot run the model: "):
        onnxruntime_outputs(model, [{"x": np.zeros((9, 9), np.float32)}])
    (outputs,) = onnxruntime_outputs(model, [{"x": np.full((1, 4), -1.0, np.float32)}])
    assert outputs["y"].tolist() == [[0.0] * 4]
