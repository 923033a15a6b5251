"""Nets cut in many ways compute what onnxruntime computes on the file, in every runtime."""

from functools import partial

import numpy as np
import pytest

from autosplit import api
from autosplit.deploy.verify import verify
from autosplit.hardware.devices.device import along
from autosplit.hardware.measurement.parity import compare
from autosplit.hardware.runtimes.registry import EXACT
from autosplit.zoo import catalog
from tests import mobile_nets, nets, user_nets
from tests.nets import judge, net

ODD_CUTS = {
    "preactivation": (nets.preactivation, [["add0"]]),
    "two readers on two stages": (nets.preactivation, [["add0"], ["r1"]]),
    "residual": (nets.residual, [["relu0a"], ["relu1a"]]),
    "after several blocks": (partial(nets.residual, 4), [["out2"]]),
    "different depths": (nets.parallel, [["b0", "d1"]]),
    "one branch before another": (nets.parallel, [["d2"], ["b1"]]),
    "tuples": (nets.tuples, [["k"], ["j"]]),
    "boundaries": (nets.boundaries, [["skip"], ["early", "both"], ["far"]]),
    "no input of the model": (nets.boundaries, [["both"], ["mid"]]),
}
FAST = ("branches", "transformer")
ZOO = [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in catalog.NAMES]
BROUGHT = {
    "bert": partial(user_nets.bert, 1, 128, 17),
    "gpt": partial(user_nets.gpt, 1, 128, 17),
    "vit": partial(user_nets.vit, 1, 128, 48),
    "convnext": partial(user_nets.convnext, (1, 1), 24, 64),
    **{name: partial(make, size=64) for name, make in mobile_nets.NETS.items()},
}


@pytest.mark.parametrize("runtime", EXACT)
@pytest.mark.parametrize("name", ODD_CUTS)
def test_a_split_is_equal_as_a_pipeline_and_as_an_export(save, tmp_path, name, runtime):
    make, after = ODD_CUTS[name]
    model = api.load_model(save(make()), runtime=runtime)
    split = model.split(after)
    judge(model, split)
    split.export(tmp_path / "out")
    assert verify(tmp_path / "out").accuracy.equal


@pytest.mark.integration
@pytest.mark.parametrize("name", ZOO)
def test_one_op_a_stage_is_equal(zoo_model, name):
    model = zoo_model(name)
    judge(model, api.Split(model, tuple((i,) for i in range(len(model.graph.ops)))), items=2)


@pytest.mark.integration
@pytest.mark.parametrize("name", BROUGHT)
def test_a_net_of_a_user_is_equal(save, name):
    model = api.load_model(save(BROUGHT[name]()), runtime="tvm")
    items = model.items(2)
    expected = model.expected(items)
    assert compare(expected[1:], expected[:1]).max_rel_error > 0.01  # the input makes a difference
    with model.unsplit(along(1)[0]) as pipeline:
        assert compare(pipeline.run(items), expected).equal
    assert name in mobile_nets.NETS or model.kernels.unscheduled == frozenset()


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
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float16)
    model = api.load_model(save(net(text, {"w": weight})))
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
