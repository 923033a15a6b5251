"""Nets unlike the zoo: token ids, half precision inside, and what else a stranger brings."""

import numpy as np
import pytest

from autosplit import api
from autosplit.hardware.reference import compare
from autosplit.report.verify import verify
from tests.nets import judge, net

pytest.importorskip("onnx")


def test_indices_into_a_table_of_two_rows_are_never_out_of_it(save, tmp_path):
    text = "g (int64[2,6] ids, int64[2,6] types) => (float[2,6,4] y) { a = Gather(w, ids) b = Gather(t, types) y = Add(a, b) }"
    model = api.load_model(save(net(text, {"w": (30, 4), "t": (2, 4)})))
    judge(model, model.split([]))


@pytest.mark.parametrize("after", [["t"], []])
def test_half_precision_inside_is_judged_as_such(save, tmp_path, after):
    text = """g (float[4,64] x) => (float[4,64] y)
        { h = Cast<to=10>(x) a = MatMul(h, w) t = Tanh(a) b = MatMul(t, w) y = Cast<to=1>(b) }"""
    model = api.load_model(
        save(net(text, {"w": np.random.default_rng(0).standard_normal((64, 64)).astype(np.float16)}))
    )
    model.split([after] if after else []).export(tmp_path / "out")
    assert verify(tmp_path / "out")[0].equal


def test_half_precision_inside_one_fused_op_counts_too(save):
    text = "g (float[4,64] x) => (float[4,64] y) { h = Cast<to=10>(x) t = Exp(h) u = Sqrt(t) y = Cast<to=1>(u) }"
    model = api.load_model(save(net(text)))
    assert {t.dtype for t in model.graph.tensors.values()} == {"float32"}
    assert model.lowered.dtypes == {"float32", "float16"}


def test_single_precision_is_not_judged_as_half():
    exact = {"y": np.ones(4, np.float32)}
    off = {"y": exact["y"] * np.float32(1.001)}
    assert compare([off], [exact], {"float32", "float16"}).equal
    assert not compare([off], [exact], {"float32", "int64"}).equal
