"""When outputs are equal to those of a reference, and how far they are from them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.hardware.measurement.parity import compare
from autosplit.hardware.measurement.results import Accuracy

RIGHT = np.array([[1.0, -200.0], [3.0, 0.0]], np.float32)


def accuracy_of(output, expected=RIGHT):
    return compare([{"y": output}], [{"y": expected}])


@pytest.mark.parametrize(("share", "equal"), [(0.5e-4, True), (2e-4, False)])
def test_the_tolerance_is_relative_to_the_outputs_scale(share, equal):
    accuracy = accuracy_of(RIGHT + np.float32(200 * share))
    assert accuracy.equal is equal
    assert accuracy.max_rel_error == pytest.approx(share, rel=1e-2)
    assert accuracy.max_abs_error == pytest.approx(200 * share, rel=1e-2)


@given(st.integers(0, 3), st.sampled_from([np.nan, np.inf, -np.inf, 1e3]))
def test_one_wrong_value_is_seen(position, value):
    output = RIGHT.copy()
    output.flat[position] = value
    assert not accuracy_of(output).equal


@pytest.mark.parametrize(
    "output",
    [
        RIGHT.astype(np.float64),
        RIGHT.astype(np.float16),
        RIGHT.reshape(4),
        RIGHT.reshape(1, 2, 2),
        RIGHT[:1],
        np.full_like(RIGHT, np.nan),
    ],
)
def test_another_shape_or_dtype_is_infinitely_wrong(output):
    assert accuracy_of(output) == Accuracy(False, np.inf, np.inf, 1, 1e-4)


def test_what_is_not_finite_must_stand_where_it_is_expected():
    expected = np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)
    assert accuracy_of(expected.copy(), expected).equal
    assert not accuracy_of(expected[[0, 2, 1, 3]], expected).equal
    assert not accuracy_of(expected[[1, 1, 2, 3]], expected).equal


def test_zeros_are_compared_absolutely_scalars_and_empty_outputs_too():
    zeros = np.zeros(3, np.float32)
    assert accuracy_of(zeros + np.float32(1e-5), zeros).equal
    assert not accuracy_of(zeros + np.float32(1e-3), zeros).equal
    for size in ((), (0,), (2, 0)):
        for dtype in (np.float32, np.int64):
            assert accuracy_of(np.zeros(size, dtype), np.zeros(size, dtype)).equal


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ([{"y": RIGHT}], [{"y": RIGHT, "z": RIGHT}]),
        ([{"y": RIGHT, "z": RIGHT}], [{"y": RIGHT}]),
        ([{"y": RIGHT}], [{"y": RIGHT}, {"y": RIGHT}]),
        ([], [{"y": RIGHT}]),
        ([], []),
    ],
)
def test_other_outputs_or_items_and_none_at_all_are_not_equal(outputs, expected):
    assert not compare(outputs, expected).equal


def test_the_worst_item_counts():
    accuracy = compare([{"y": RIGHT}, {"y": RIGHT + 1}, {"y": RIGHT}], [{"y": RIGHT}] * 3)
    assert (accuracy.equal, accuracy.max_abs_error, accuracy.items) == (False, 1.0, 3)


@given(st.integers(-6, 6), st.floats(-1, 1))
def test_the_scale_of_an_output_does_not_matter(power, off):
    factor = np.float32(10.0**power)
    plain = accuracy_of(RIGHT + np.float32(off))
    scaled = accuracy_of((RIGHT + np.float32(off)) * factor, RIGHT * factor)
    assert plain.equal == scaled.equal or abs(plain.max_rel_error - 1e-4) < 1e-6
    assert scaled.max_rel_error == pytest.approx(plain.max_rel_error, rel=1e-2, abs=1e-6)


def test_each_output_has_a_scale_of_its_own():
    expected = {"large": np.array([1e6], np.float32), "small": np.array([1e-3], np.float32)}
    off = expected | {"small": np.array([2e-3], np.float32)}
    accuracy = compare([off], [expected])
    assert not accuracy.equal
    assert accuracy.max_rel_error == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize(
    ("dtype", "output", "expected", "error"),
    [
        ("int64", 2**53 + 1, 2**53, 1.0),
        ("int64", -(2**63), 2**63 - 1, 2.0**64),
        ("uint64", 0, 2**64 - 1, 2.0**64),
        ("int8", -128, 127, 255.0),
        ("uint8", 1, 0, 1.0),
        ("bool", True, False, 1.0),
    ],
)
def test_integers_and_booleans_are_equal_to_the_bit(dtype, output, expected, error):
    right = np.array([0, expected], dtype)
    assert accuracy_of(right.copy(), right).equal
    wrong = Accuracy(False, error, np.inf, 1, 1e-4)
    assert accuracy_of(np.array([0, output], dtype), right) == wrong


def test_equal_outputs_are_equal_and_the_sign_of_zero_is_no_error():
    output = np.where(RIGHT == 0, np.float32(-0.0), RIGHT)
    assert accuracy_of(output) == Accuracy(True, 0.0, 0.0, 1, 1e-4)
