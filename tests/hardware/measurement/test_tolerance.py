from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from autosplit import api
from autosplit.deploy.verify import verify
from autosplit.errors import MismatchError
from autosplit.frontend.source import SourceModel
from autosplit.hardware.measurement import reference
from autosplit.hardware.measurement.parity import compare, tolerance_of
from autosplit.hardware.measurement.sequences import refusal
from tests import nets

EXPECTED = [{"y": np.array([1.0, 100.0], np.float32), "q": np.array([3, 100], np.uint8)}]
OFF = [{"y": np.array([1.0, 101.0], np.float32), "q": np.array([3, 101], np.uint8)}]


def test_the_tolerance_holds_for_floats_and_quantised_values_not_for_wide_integers():
    for name in "yq":
        outputs, expected = [{name: OFF[0][name]}], [{name: EXPECTED[0][name]}]
        assert compare(outputs, expected, 0.02).equal
        assert not compare(outputs, expected, 0.005).equal
    assert not compare([{"i": np.array([2])}], [{"i": np.array([1])}], 5.0).equal


def test_the_coarsest_element_type_decides():
    kinds = ((), ("float32", "int64"), ("float16", "float32"), ("bfloat16",))
    assert [tolerance_of(dtypes) for dtypes in kinds] == [1e-4, 1e-4, 1e-2, 5e-2]


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
    # A large error is no rounding.
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

    def run(self, items):
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


@pytest.mark.parametrize(
    ("form", "with_file", "without"),
    [
        ("onnx", "onnxruntime", "TVM without fusion"),
        ("relax", "TVM without fusion", "TVM without fusion"),
        ("torch", "torch", "torch"),
    ],
)
def test_the_reference_is_the_program_that_the_model_comes_from(form, with_file, without):
    source = SourceModel("net", None, (), (), {}, frozenset(), (), (), format=form)
    for path, name in ((Path("net"), with_file), (None, without)):
        assert reference.reference_of(source, path, "llvm").name == name
