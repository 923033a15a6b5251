from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.errors import MachineError, ModelError, StageError
from autosplit.hardware.measurement.parity import (
    compare,
    onnxruntime_outputs,
    onnxruntime_session,
    require_equal,
)
from autosplit.hardware.measurement.results import Accuracy
from tests.build import node, onnx_model

RIGHT = np.array([[1.0, -200.0], [3.0, 0.0]], np.float32)


def accuracy_of(mine, wanted=RIGHT):
    return compare([{"y": mine}], [{"y": wanted}])


def test_equal_outputs_are_equal():
    assert accuracy_of(RIGHT.copy()) == Accuracy(True, 0.0, 0.0, 1)


@pytest.mark.parametrize(("share", "equal"), [(0.5e-4, True), (2e-4, False)])
def test_the_tolerance_is_relative_to_the_outputs_scale(share, equal):
    found = accuracy_of(RIGHT + np.float32(200 * share))
    assert found.equal is equal
    assert found.max_rel_error == pytest.approx(share, rel=1e-2)
    assert found.max_abs_error == pytest.approx(200 * share, rel=1e-2)


@given(st.integers(0, 3), st.sampled_from([np.nan, np.inf, -np.inf, 1e3]))
def test_one_wrong_value_is_seen(position, value):
    mine = RIGHT.copy()
    mine.flat[position] = value
    assert not accuracy_of(mine).equal


@pytest.mark.parametrize(
    "mine",
    [
        RIGHT.astype(np.float64),
        RIGHT.astype(np.float16),
        RIGHT.reshape(4),
        RIGHT.reshape(1, 2, 2),
        RIGHT[:1],
    ],
)
def test_another_shape_or_dtype_is_seen(mine):
    assert accuracy_of(mine) == Accuracy(False, np.inf, np.inf, 1)


def test_a_value_that_is_not_finite_and_an_output_that_is_missing_are_infinitely_wrong():
    wrong = Accuracy(False, np.inf, np.inf, 1)
    assert accuracy_of(np.full_like(RIGHT, np.nan)) == wrong
    assert compare([{}], [{"y": RIGHT}]) == wrong


def test_what_is_not_finite_must_stand_where_it_is_expected():
    wanted = np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)
    assert accuracy_of(wanted.copy(), wanted).equal
    assert not accuracy_of(wanted[[0, 2, 1, 3]], wanted).equal
    assert not accuracy_of(wanted[[1, 1, 2, 3]], wanted).equal


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.bool_])
def test_integers_and_booleans_are_equal_to_the_bit(dtype):
    wanted = np.array([1, 0, 1], dtype)
    assert accuracy_of(wanted.copy(), wanted).equal
    assert accuracy_of(np.array([1, 1, 1], dtype), wanted) == Accuracy(False, 1.0, 1.0, 1)


def test_zeros_are_compared_absolutely():
    zeros = np.zeros(3, np.float32)
    assert accuracy_of(zeros + np.float32(1e-5), zeros).equal
    assert not accuracy_of(zeros + np.float32(1e-3), zeros).equal


def test_half_precision_has_a_tolerance_of_its_own():
    wanted = np.ones(3, np.float16)
    assert accuracy_of(wanted * np.float16(1.005), wanted).equal
    assert not accuracy_of(wanted * np.float16(1.02), wanted).equal


@pytest.mark.parametrize("size", [(), (0,), (2, 0)])
def test_scalars_and_empty_outputs_are_compared(size):
    for dtype in (np.float32, np.int64):
        assert accuracy_of(np.zeros(size, dtype), np.zeros(size, dtype)).equal


def test_a_missing_output_or_item_is_seen():
    assert not compare([{"y": RIGHT}], [{"y": RIGHT, "z": RIGHT}]).equal
    assert not compare([{"y": RIGHT, "z": RIGHT}], [{"y": RIGHT}]).equal
    assert not compare([{"y": RIGHT}], [{"y": RIGHT}, {"y": RIGHT}]).equal
    assert not compare([], [{"y": RIGHT}]).equal


def test_nothing_compared_is_not_equal():
    assert not compare([], []).equal


def test_the_worst_item_counts():
    found = compare([{"y": RIGHT}, {"y": RIGHT + 1}, {"y": RIGHT}], [{"y": RIGHT}] * 3)
    assert (found.equal, found.max_abs_error, found.items) == (False, 1.0, 3)


def test_a_wrong_result_says_how_wrong():
    with pytest.raises(StageError, match=r"wrong result, max abs err 1, max rel err 0.005 against"):
        require_equal(accuracy_of(RIGHT + 1))
    assert require_equal(accuracy_of(RIGHT)).equal


def test_a_model_onnxruntime_refuses_is_a_model_error(tmp_path):
    pytest.importorskip("onnxruntime")
    (tmp_path / "net.onnx").write_bytes(b"no model")
    with pytest.raises(ModelError, match="onnxruntime cannot load the model"):
        onnxruntime_outputs(tmp_path / "net.onnx", [])


def test_a_model_onnxruntime_refuses_is_no_reason_to_print(capfd):
    pytest.importorskip("onnxruntime")
    model = onnx_model([node("Fancy", "x", "y")]).SerializeToString()
    with pytest.raises(ModelError, match="onnxruntime cannot load the model"):
        onnxruntime_outputs(model.replace(b"Fancy", b"F\xd5ncy"), [])
    assert capfd.readouterr() == ("", "")


def test_onnxruntime_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(
        MachineError, match=r"onnxruntime cannot be imported .*; pip install 'autosplit\[onnx\]'"
    ):
        onnxruntime_outputs(b"", [])


@pytest.mark.parametrize(
    ("kinds", "bound"),
    [
        ((), 1e-4),
        (("float32", "int64", "bool"), 1e-4),
        (("float32", "float16"), 1e-2),
        (("float16", "float32"), 1e-2),
        (("bfloat16", "float16"), 5e-2),
    ],
)
def test_the_coarsest_type_a_model_computes_in_decides(kinds, bound):
    wanted = np.array([1.0, -2.0], np.float32)
    for share, equal in ((0.9, True), (1.1, False)):
        mine = wanted + np.float32(2 * bound * share)
        assert compare([{"y": mine}], [{"y": wanted}], kinds).equal is equal


def test_a_coarse_type_says_nothing_about_integers():
    wanted = np.array([1000, 2000])
    assert not compare([{"y": wanted + 1}], [{"y": wanted}], ["float16"]).equal


@given(st.integers(-6, 6), st.floats(-1, 1))
def test_the_scale_of_an_output_does_not_matter(power, off):
    factor = np.float32(10.0**power)
    plain, scaled = (
        accuracy_of(RIGHT + np.float32(off)),
        accuracy_of((RIGHT + np.float32(off)) * factor, RIGHT * factor),
    )
    assert plain.equal == scaled.equal or abs(plain.max_rel_error - 1e-4) < 1e-6
    assert scaled.max_rel_error == pytest.approx(plain.max_rel_error, rel=1e-2, abs=1e-6)


def test_each_output_has_a_scale_of_its_own():
    wanted = {"large": np.array([1e6], np.float32), "small": np.array([1e-3], np.float32)}
    off = wanted | {"small": np.array([2e-3], np.float32)}
    found = compare([off], [wanted])
    assert not found.equal
    assert found.max_rel_error == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize(
    ("dtype", "mine", "wanted", "gap"),
    [
        ("int64", 2**53 + 1, 2**53, 1.0),
        ("int64", -(2**63), 2**63 - 1, 2.0**64),
        ("uint64", 0, 2**64 - 1, 2.0**64),
        ("int8", -128, 127, 255.0),
        ("bool", True, False, 1.0),
    ],
)
def test_the_gap_between_integers_is_exact(dtype, mine, wanted, gap):
    found = compare([{"y": np.array([0, mine], dtype)}], [{"y": np.array([0, wanted], dtype)}])
    assert (found.equal, found.max_abs_error) == (False, gap)


def test_the_sign_of_zero_is_no_error():
    assert accuracy_of(
        np.array([-0.0, 1.0], np.float32), np.array([0.0, 1.0], np.float32)
    ) == Accuracy(True, 0.0, 0.0, 1)


def test_an_item_that_onnxruntime_refuses_is_a_model_error():
    pytest.importorskip("onnxruntime")
    model = onnx_model([node("Relu", "x", "y")]).SerializeToString()
    with pytest.raises(ModelError, match="onnxruntime cannot run the model: "):
        onnxruntime_outputs(model, [{"x": np.zeros((9, 9), np.float32)}])
    (found,) = onnxruntime_outputs(model, [{"x": np.full((1, 4), -1.0, np.float32)}])
    assert found["y"].tolist() == [[0.0] * 4]


def test_a_session_has_the_threads_and_entries_it_is_asked_for(monkeypatch):
    onnxruntime = pytest.importorskip("onnxruntime")
    given = []
    monkeypatch.setattr(onnxruntime, "InferenceSession", lambda *a, **k: given.append((a, k)))
    onnxruntime_session(
        b"bytes", 3, {"session.intra_op.allow_spinning": "0"}, enable_profiling=False
    )
    onnxruntime_session(Path("net.onnx"))
    (first, options), (second, _) = given
    assert (first[0], first[1].intra_op_num_threads, first[1].inter_op_num_threads) == (
        b"bytes",
        3,
        1,
    )
    assert first[1].get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert (second[0], second[1].intra_op_num_threads) == ("net.onnx", 1)
    assert options["providers"] == ["CPUExecutionProvider"]
