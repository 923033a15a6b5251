import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit import api
from autosplit.errors import ConfigError, ModelError
from autosplit.frontend.source import SourceModel
from autosplit.hardware.execution.pipeline import Pipeline
from autosplit.hardware.execution.wiring import wire
from autosplit.hardware.measurement import reference, sequences
from autosplit.hardware.measurement.parity import compare, tolerance_of
from autosplit.hardware.measurement.results import Accuracy
from autosplit.hardware.measurement.sequences import refusal
from autosplit.lowering.states import match_states
from tests.hardware.fakes import graph
from tests.nets import net

RIGHT = np.array([[1.0, -200.0], [3.0, 0.0]], np.float32)


def accuracy_of(output, expected=RIGHT):
    return compare([{"y": output}], [{"y": expected}])


@pytest.mark.parametrize(("share", "equal"), [(0.5e-4, True), (2e-4, False)])
@pytest.mark.parametrize("scale", np.float32([1e-6, 1, 1e6]))
def test_the_tolerance_is_relative_to_the_outputs_scale(scale, share, equal):
    accuracy = accuracy_of((RIGHT + np.float32(200 * share)) * scale, RIGHT * scale)
    assert accuracy.equal is equal
    assert accuracy.max_rel_error == pytest.approx(share, rel=1e-2)
    assert accuracy.max_abs_error == pytest.approx(200 * share * scale, rel=1e-2)


@given(st.integers(0, 3), st.sampled_from([np.nan, np.inf, -np.inf, 1e3]))
def test_one_wrong_value_is_seen(position, value):
    output = RIGHT.copy()
    output.flat[position] = value
    assert not accuracy_of(output).equal


OTHERS = [*map(RIGHT.astype, ("f8", "f2")), RIGHT.reshape(4), RIGHT.reshape(1, 2, 2), RIGHT[:1]]


@pytest.mark.parametrize("output", [*OTHERS, np.full_like(RIGHT, np.nan)])
def test_another_shape_or_dtype_is_infinitely_wrong(output):
    assert accuracy_of(output) == Accuracy(False, np.inf, np.inf, 1, 1e-4)


def test_what_is_not_finite_must_stand_where_it_is_expected():
    expected = np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)
    assert accuracy_of(expected.copy(), expected).equal
    assert not accuracy_of(expected[[0, 2, 1, 3]], expected).equal
    assert not accuracy_of(expected[[1, 1, 2, 3]], expected).equal


def test_zeros_of_any_sign_are_compared_absolutely_scalars_and_empty_outputs_too():
    negative = np.where(RIGHT == 0, np.float32(-0.0), RIGHT)
    assert accuracy_of(negative) == Accuracy(True, 0.0, 0.0, 1, 1e-4)
    zeros = np.zeros(3, np.float32)
    assert accuracy_of(zeros + np.float32(1e-5), zeros).equal
    assert not accuracy_of(zeros + np.float32(1e-3), zeros).equal
    for size in ((), (0,), (2, 0)):
        for dtype in (np.float32, np.int64):
            assert accuracy_of(np.zeros(size, dtype), np.zeros(size, dtype)).equal


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [([{"y": RIGHT}], [{"y": RIGHT, "z": RIGHT}]), ([{"y": RIGHT, "z": RIGHT}], [{"y": RIGHT}]),
     ([{"y": RIGHT}], [{"y": RIGHT}, {"y": RIGHT}]), ([], [{"y": RIGHT}]), ([], [])],
)  # fmt: skip
def test_other_outputs_or_items_and_none_at_all_are_not_equal(outputs, expected):
    assert not compare(outputs, expected).equal


def test_an_output_of_which_the_reference_has_no_numbers_cannot_be_compared(save):
    nets = ["y = ReduceMean(Log(x))", "y = ReduceMean(Log(Sub(Neg(Abs(x)), Exp(x))))"]
    ports = "g (float[1,4] x) => (float[1,1] y, float[1,4] z)"
    never, sometimes = (
        api.load_model(save(net(f"{ports} {{ {text}  z = Relu(x) }}"), f"{n}.onnx"))
        for n, text in enumerate(reversed(nets))
    )
    assert np.isfinite([item["y"] for item in sometimes.reference_outputs.along]).sum() == 1
    with pytest.raises(ModelError, match="output 'y' of onnxruntime is NaN or infinite for all"):
        never.reference_outputs  # noqa: B018


def test_the_worst_item_counts_each_output_has_a_scale_of_its_own_and_fillings_set_none():
    accuracy = compare([{"y": RIGHT}, {"y": RIGHT + 1}, {"y": RIGHT}], [{"y": RIGHT}] * 3)
    assert (accuracy.equal, accuracy.max_abs_error, accuracy.items) == (False, 1.0, 3)
    expected = {"large": np.float32([1e6]), "small": np.float32([1e-3])}
    accuracy = compare([expected | {"small": np.float32([2e-3])}], [expected])
    assert (accuracy.equal, accuracy.max_rel_error) == (False, pytest.approx(1.0, rel=1e-3))
    assert not accuracy_of(np.float32([0.6, -3e38]), np.float32([0.5, -3e38])).equal


def test_scores_beside_pixels_or_masked_places_have_a_scale_of_their_own():
    pixels, scores = np.linspace(20, 640, 32), np.linspace(1e-3, 0.05, 64)
    for large in (pixels, scores[:32] - 1e4, scores[:32] - 1e6):
        right = np.concatenate([large, scores]).reshape(1, 12, 8)
        wrong = np.concatenate([large * 1.0000005, scores[::-1]]).reshape(1, 12, 8)
        assert accuracy_of(right * 1.0000005, right).equal
        assert not accuracy_of(wrong, right).equal


@pytest.mark.parametrize(
    ("dtype", "output", "expected", "error"),
    [("int64", 2**53 + 1, 2**53, 1.0), ("int64", -(2**63), 2**63 - 1, 2.0**64),
     ("uint64", 0, 2**64 - 1, 2.0**64), ("int8", -128, 127, 255.0), ("uint8", 1, 0, 1.0),
     ("bool", True, False, 1.0)],
)  # fmt: skip
def test_integers_and_booleans_are_equal_to_the_bit(dtype, output, expected, error):
    right = np.array([0, expected], dtype)
    assert accuracy_of(right.copy(), right).equal
    wrong = Accuracy(False, error, np.inf, 1, 1e-4)
    assert accuracy_of(np.array([0, output], dtype), right) == wrong


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
    text = refusal(compare(OFF, EXPECTED), ["tvm", "openvino", "tvm"], "onnxruntime")
    assert text == (
        "outputs of tvm and openvino differ from onnxruntime's in shape, type, NaN, infinities or "
        "integers; choose another --runtime"
    )
    right = EXPECTED[0]["y"]
    text = refusal(accuracy_of(OFF[0]["y"], right), ["tvm"], "onnxruntime")
    assert text == (
        "outputs of tvm differ from onnxruntime's (relative error 0.01, tolerance 0.0001); "
        "choose another --runtime or, if that is good enough, give --tolerance 0.011"
    )
    # A large error is no rounding.
    assert "--tolerance" not in refusal(accuracy_of(right * 2, right), ["tvm"], "onnxruntime")


@pytest.mark.parametrize("tolerance", [0, -1.0, float("nan"), float("inf")])
def test_a_tolerance_that_is_none_is_refused(branches, tolerance):
    with pytest.raises(ConfigError, match=f"tolerance is {tolerance}; give a number above 0"):
        api.load_model(branches.path, tolerance=tolerance)


@pytest.mark.parametrize(
    ("form", "with_file", "without"),
    [("onnx", "onnxruntime", "TVM without fusion"), ("torch", "torch", "torch"),
     ("relax", "TVM without fusion", "TVM without fusion")],
)  # fmt: skip
def test_the_reference_is_the_program_that_the_model_comes_from(form, with_file, without):
    source = SourceModel("net", None, (), (), {}, frozenset(), (), (), format=form)
    for path, name in ((Path("net"), with_file), (None, without)):
        assert reference.reference_of(source, path, "llvm").name == name


def test_a_replica_that_opens_late_is_compared_too():
    right = Mock(run=lambda values: values)
    wrong = Mock(open=partial(time.sleep, 0.1), run=lambda values: [values[0] + 1])
    expected = sequences.Expected([{"y": np.zeros(2)}], items=[{"x": np.zeros(2)}])
    wiring = wire(graph([("y", ["x"])], ["x"], ["y"]), [[0]], [("y", "y")])
    with Pipeline(wiring, [[right, wrong]]) as tried:
        assert not sequences.accuracy_of(tried, expected, 1e-4).equal


# a pipeline with states: along streams, and step by step on the reference's states

SUCCESSORS = {"before": "after"}
NET = graph([("after", ["x", "before"]), ("y", ["after"])], ["x", "before"], ["y", "after"])
PAIRS = [("y", "y"), ("after", "after")]
START = {"before": np.array([0.3, 0.4])}
ITEMS = [{"x": np.zeros(2)}] * 32


def chaotic(values, error):
    """A logistic map, in which the smallest error grows to any size within some steps."""
    x, before = values
    after = 3.9 * before * (1 - before) * (1 + error) + x
    return after, after


def step(item):
    return dict(zip(("after", "y"), chaotic((item["x"], item["before"]), 0.0), strict=True))


CHAOS = SimpleNamespace(name="chaos", open=lambda: step)  # the reference


def accuracy_along(error, in_state=True):
    """Of a stage that errs by a share in its states or outputs; along the stream states are 0."""

    def run(values):
        wrong, right = chaotic(values, error)[0], chaotic(values, 0.0)[0]
        return (wrong, right) if in_state else (right, wrong)

    wiring = wire(replace(NET, states=match_states(NET, PAIRS, SUCCESSORS)), [[0, 1]], PAIRS)
    assert [port.name for port in wiring.stages[0].outputs] == ["after", "y"]
    expected = sequences.expect(CHAOS, ITEMS, {"before": np.zeros(2)}, SUCCESSORS)
    alone = sequences.expect(CHAOS, ITEMS, START, SUCCESSORS)
    expected = replace(expected, alone=alone.alone, states=alone.states)
    with Pipeline(wiring, [[Mock(run=run)]]) as tried:
        return sequences.accuracy_of(tried, expected, 1e-4)


def test_a_step_is_compared_on_the_states_of_the_reference():
    accuracy = accuracy_along(0.0)
    assert (accuracy.equal, accuracy.items) == (True, 3 * 32 + 32)


@pytest.mark.parametrize("in_state", [True, False])
def test_an_error_that_shows_on_those_states_alone_is_found(in_state):
    assert not accuracy_along(1e-3, in_state).equal
