"""Which errors of outputs are accepted, and what is said of those that are not."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autosplit import api
from autosplit.deploy.verify import verify
from autosplit.errors import MismatchError, ModelError
from autosplit.frontend.source import SourceModel
from autosplit.hardware.measurement import reference
from autosplit.hardware.measurement.parity import compare, tolerance_of
from autosplit.hardware.measurement.sequences import refusal
from tests import nets

EXPECTED = [{"y": np.array([1.0, 100.0], np.float32), "q": np.array([3, 100], np.uint8)}]
OFF = [{"y": np.array([1.0, 101.0], np.float32), "q": np.array([3, 101], np.uint8)}]


@pytest.mark.parametrize(("tolerance", "equal"), [(0.02, True), (0.005, False)])
def test_the_tolerance_holds_for_floats_and_quantised_values(tolerance, equal):
    for name in "yq":
        outputs, expected = [{name: OFF[0][name]}], [{name: EXPECTED[0][name]}]
        assert compare(outputs, expected, tolerance).equal == equal


def test_wide_integers_are_exact_whatever_the_tolerance():
    assert not compare([{"i": np.array([2])}], [{"i": np.array([1])}], 5.0).equal


@pytest.mark.parametrize(
    ("dtypes", "tolerance"),
    [
        ((), 1e-4),
        (("float32", "int64"), 1e-4),
        (("float16", "float32"), 1e-2),
        (("bfloat16",), 5e-2),
    ],
)
def test_the_coarsest_element_type_decides(dtypes, tolerance):
    assert tolerance_of(dtypes) == tolerance


def test_a_refusal_names_runtimes_error_tolerance_and_remedies():
    text = refusal(compare(OFF[:1], EXPECTED, 1e-4), ["tvm", "openvino", "tvm"], "onnxruntime")
    assert text == (
        "outputs of tvm and openvino differ from onnxruntime's in shape, type, NaN, infinities or "
        "integers; choose another --runtime"
    )
    floats = [{"y": OFF[0]["y"]}], [{"y": EXPECTED[0]["y"]}]
    text = refusal(compare(*floats, 1e-4), ["tvm"], "onnxruntime")
    assert text == (
        "outputs of tvm differ from onnxruntime's (relative error 0.01, tolerance 0.0001); "
        "choose another --runtime or, if that is good enough, give --tolerance 0.011"
    )


def test_a_large_error_is_no_rounding_and_no_tolerance_is_advised():
    wrong = [{"y": EXPECTED[0]["y"] * 2}], [{"y": EXPECTED[0]["y"]}]
    assert "--tolerance" not in refusal(compare(*wrong), ["tvm"], "onnxruntime")


QDQ = """g (float[1,8] x) => (float[1,8] y) {
    a = QuantizeLinear(x, s, z)  b = DequantizeLinear(a, s, z)
    c = MatMul(b, w)  d = QuantizeLinear(c, s, z)  e = DequantizeLinear(d, s, z)  y = Relu(e)
}"""


@pytest.fixture
def quantised(save):
    weights = {"w": (8, 8), "s": np.array(0.05, np.float32), "z": np.array(0, np.int8)}
    return save(nets.net(QDQ, weights))


class _Off(SimpleNamespace):
    """A pipeline whose outputs are too large by a share."""

    def run(self, items: Any) -> Any:
        outputs = self.model.expected(items)
        return [{n: a * np.float32(1 + self.share) for n, a in item.items()} for item in outputs]


def test_a_model_accepts_the_tolerance_that_was_asked_for(quantised):
    model = api.load_model(quantised)
    with pytest.raises(MismatchError, match=r"error 0.05, tolerance 0.0001.*--tolerance 0.055"):
        model.require_equal(_Off(model=model, share=0.05), ["tvm"])
    tolerant = api.load_model(quantised, tolerance=0.055)
    assert tolerant.require_equal(_Off(model=tolerant, share=0.05), ["tvm"]).equal


def test_an_export_is_verified_with_the_tolerance_that_is_given(quantised, tmp_path):
    api.load_model(quantised).split([]).export(tmp_path / "out")
    assert verify(tmp_path / "out", tolerance=1e-6).accuracy.equal


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
    with pytest.raises(ModelError, match="onnxruntime cannot load the model"):
        reference.onnxruntime_reference(tmp_path / "absent.onnx").open()
