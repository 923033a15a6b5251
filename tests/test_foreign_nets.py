"""Nets unlike the zoo: token ids, half precision inside, and what else a stranger brings."""

import numpy as np
import pytest

from autosplit import api
from autosplit.deploy.verify import verify
from autosplit.hardware.measurement.parity import compare, tolerance_of
from tests.nets import judge, net

pytest.importorskip("onnx")


def test_indices_into_a_table_of_two_rows_are_never_out_of_it(save, tmp_path):
    text = (
        "g (int64[2,6] ids, int64[2,6] types) => (float[2,6,4] y)"
        " { a = Gather(w, ids) b = Gather(t, types) y = Add(a, b) }"
    )
    model = api.load_model(save(net(text, {"w": (30, 4), "t": (2, 4)})))
    judge(model, model.split([]))


@pytest.mark.parametrize("after", [["t"], []])
def test_half_precision_inside_is_judged_as_such(save, tmp_path, after):
    text = """g (float[4,64] x) => (float[4,64] y)
        { h = Cast<to=10>(x) a = MatMul(h, w) t = Tanh(a) b = MatMul(t, w) y = Cast<to=1>(b) }"""
    model = api.load_model(
        save(
            net(text, {"w": np.random.default_rng(0).standard_normal((64, 64)).astype(np.float16)})
        )
    )
    model.split([after] if after else []).export(tmp_path / "out")
    assert verify(tmp_path / "out").accuracy.equal


def test_half_precision_inside_one_fused_op_counts_too(save):
    text = (
        "g (float[4,64] x) => (float[4,64] y)"
        " { h = Cast<to=10>(x) t = Exp(h) u = Sqrt(t) y = Cast<to=1>(u) }"
    )
    model = api.load_model(save(net(text)))
    assert {t.dtype for t in model.graph.tensors.values()} == {"float32"}
    assert model.lowered.dtypes == {"float32", "float16"}


def test_single_precision_is_not_judged_as_half():
    exact = {"y": np.ones(4, np.float32)}
    off = {"y": exact["y"] * np.float32(1.001)}
    assert compare([off], [exact], tolerance_of({"float32", "float16"})).equal
    assert not compare([off], [exact], tolerance_of({"float32", "int64"})).equal


FUNCTIONS = """<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
    g (float[2,4] x) => (float[2,4] y) { a = local.nested(x) b = Softmax(a) y = local.twice(b) }
    <domain: "local", opset_import: ["" : 17]> twice (x) => (y) {
        k = Constant<value = float {2.0}>() y = Mul(x, k) }
    <domain: "local", opset_import: ["" : 17, "local" : 1]> nested (x) => (y) {
        a = local.twice(x) y = Tanh(a) }"""
SQUARE = {"w": (4, 4)}


def of_ir_3():
    """Initialisers are inputs too, and stand before the one that the caller gives."""
    model = net(
        "g (float[4,4] w, float[2,4] x) => (float[2,4] y)"
        " { a = MatMul(x, w) b = Softmax(a) y = MatMul(b, w) }",
        SQUARE,
    )
    model.ir_version = 3
    return model


def functions():
    from onnx import parser

    return parser.parse_model(FUNCTIONS)


def wide():
    """A concat of 30 products, each read twice."""
    names = [f"a{i}" for i in range(30)]
    lines = " ".join(f"{a} = MatMul(x, w{a})" for a in names)
    text = (
        f"g (float[1,4] x) => (float[1,240] y)"
        f" {{ {lines} y = Concat<axis=1>({', '.join(names * 2)}) }}"
    )
    return net(text, {f"w{a}": (4, 4) for a in names})


ODD = {
    "functions": functions,
    "ir 3": of_ir_3,
    "wide": wide,
    "scalars": lambda: net(
        "g (float[2,4] x, float z) => (float y)"
        " { a = Mul(x, z) b = MatMul(a, w) c = ReduceSum<keepdims=0>(b) y = Add(c, z) }",
        SQUARE,
    ),
    "nothing inside": lambda: net(
        """g (float[2,4] x) => (float[2,4] y, float[0,4] e)
            { e = Slice(x, o, o) a = Concat<axis=0>(x, e) b = MatMul(a, w) y = Softmax(b) }""",
        SQUARE | {"o": np.array([0])},
    ),
    "bytes and truths": lambda: net(
        """g (uint8[2,4] x, bool[2,4] m, float[2,4] z) => (uint8[2,4] y, bool[2,4] n) {
            n = Not(m) c = Cast<to=1>(x) b = MatMul(c, w) d = Where(n, b, z)
            r = Relu(d) s = Softmax(r) y = Cast<to=2>(s) }""",
        SQUARE,
    ),
    "inner outputs": lambda: net(
        "g (float[2,4] x) => (float[2,4] y, float[2,4] a, float[2,4] x)"
        " { a = MatMul(x, w) b = Softmax(a) y = MatMul(b, w) }",
        SQUARE,
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_net_split_in_two_computes_the_same(save, name):
    model = api.load_model(save(ODD[name]()))
    middle = model.graph.ops[(len(model.graph.ops) - 1) // 2].name
    judge(model, model.split([[middle]] if len(model.graph.ops) > 1 else []))
