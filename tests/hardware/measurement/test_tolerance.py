"""The tolerance follows from the model: by how much its reference differs from itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autosplit import api
from autosplit.deploy.verify import verify
from autosplit.errors import StageError
from autosplit.hardware.measurement.parity import compare, distances
from autosplit.hardware.measurement.sequences import Computed, Expected, accuracy_of
from tests import nets

EXPECTED = [{"y": np.array([1.0, 100.0], np.float32), "q": np.array([3, 7], np.uint8)}]
OFF = [{"y": np.array([1.0, 101.0], np.float32), "q": np.array([3, 8], np.uint8)}]


class Noisy:
    """A reference that computes ``plain`` without optimisation."""

    name = "noisy"

    def __init__(self, **plain: Any) -> None:
        self.plain = [EXPECTED[0] | plain]
        self.runs = 0

    def open(self, optimise: bool = True) -> Any:
        self.runs += 1
        return lambda item: (EXPECTED if optimise else self.plain)[0]


def test_noise_is_the_distance_of_each_output() -> None:
    assert distances(EXPECTED, OFF) == {"y": pytest.approx(0.01), "q": 1}


@pytest.mark.parametrize(
    ("noisy_outputs", "equal"), [("yq", True), ("y", False), ("q", False), ("", False)]
)
def test_the_noise_of_an_output_adds_to_its_tolerance(noisy_outputs: str, equal: bool) -> None:
    reference = Noisy(**{name: OFF[0][name] for name in noisy_outputs})
    expected = Expected(EXPECTED, items=[{}])
    assert accuracy_of(Computed(OFF), expected, ["float32"], None, reference).equal == equal


def test_equal_outputs_ask_for_no_noise() -> None:
    reference = Noisy()
    expected = Expected(EXPECTED, items=[{}])
    assert accuracy_of(Computed(EXPECTED), expected, ["float32"], None, reference).equal
    assert reference.runs == 0


def test_wide_integers_stay_exact_whatever_the_noise() -> None:
    index, other = [{"i": np.array([1])}], [{"i": np.array([2])}]
    assert not compare(other, index, noise={"i": 5.0}).equal


@pytest.mark.parametrize(("asked", "equal"), [(0.02, True), (0.005, False)])
def test_a_tolerance_that_is_asked_for_is_taken(asked: float, equal: bool) -> None:
    outputs, expected = [{"y": OFF[0]["y"]}], [{"y": EXPECTED[0]["y"]}]
    assert compare(outputs, expected, asked=asked).equal == equal


QDQ = """g (float[1,8] x) => (float[1,8] y) {
    a = QuantizeLinear(x, s, z)  b = DequantizeLinear(a, s, z)
    c = MatMul(b, w)  d = QuantizeLinear(c, s, z)  e = DequantizeLinear(d, s, z)  y = Relu(e)
}"""


@pytest.fixture
def quantised(save: Any) -> Any:
    pytest.importorskip("onnxruntime")
    weights = {"w": (8, 8), "s": np.array(0.05, np.float32), "z": np.array(0, np.int8)}
    return save(nets.net(QDQ, weights))


def test_a_message_says_the_error_the_tolerance_and_the_remedy(quantised: Any) -> None:
    model = api.load_model(quantised)
    expected = model.expect(model.items(1))
    wrong = [{"y": expected.along[0]["y"] * np.float32(1.05)}]
    pipeline = SimpleNamespace(run=lambda items: wrong)
    with pytest.raises(StageError, match=r"error 0.05, tolerance 0.0001.*--tolerance 0.055"):
        model.require_equal(pipeline, expected)
    tolerant = api.load_model(quantised, tolerance=0.055)
    assert tolerant.require_equal(pipeline, expected).equal


def test_an_export_is_verified_with_the_tolerance_that_is_given(
    quantised: Any, tmp_path: Any
) -> None:
    api.load_model(quantised).split([]).export(tmp_path / "out")
    assert verify(tmp_path / "out", tolerance=1e-6)[0].equal
