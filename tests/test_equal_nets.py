"""Nets cut in many ways compute what onnxruntime computes on the file, in every runtime."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from autosplit import api, cuts
from autosplit.deploy.verify import verify
from autosplit.hardware.devices.device import along
from autosplit.hardware.measurement.parity import compare
from autosplit.hardware.runtimes.registry import AUTO, EXACT
from autosplit.zoo import catalog
from tests import mobile_nets, nets, user_nets
from tests.nets import judge, net

# The shape that is asked of an earlier stage is a constant.
SHAPED = """g (float[2,3,4] x) => (float[2,12] y) {
    a = Exp(x)  b = Softmax<axis=2>(a)
    s = Shape(a)  n = Gather(s, zero)  u = Unsqueeze(n, zeros)  t = Concat<axis=0>(u, rest)
    r = Reshape(b, t)  y = MatMul(r, w)
}"""
SIZES = {"zero": np.array(0), "zeros": np.array([0]), "rest": np.array([-1]), "w": (12, 12)}
SKIPPING = """g (float[4,4] x) => (float[4,4] y) {
    s = MatMul(x, w)  a = MatMul(x, v)  b = MatMul(a, w)  y = MatMul(b, s)
}"""
# Its parts are more numbers than an import computes.
PARTS = """g (float[2,40] x) => (float[2,40] y) {
    p, q = Split<axis=1>(w)  a = MatMul(x, p)  b = MatMul(x, q)  y = Sub(a, b)
}"""
# A net, its cuts, and the stages that read each tensor which crosses the first one.
ODD_CUTS = {
    "a sum with two readers": (nets.preactivation, [["add0"]], {"add0": (1,)}),
    "two readers on two stages": (nets.preactivation, [["add0"], ["r1"]], {"add0": (1, 2)}),
    "residual": (nets.residual, [["relu1a"], ["relu2a"]], {"out0": (1,), "relu1a": (1,)}),
    "different depths": (nets.parallel, [["b0", "d1"]], dict.fromkeys(("stem", "b0", "d1"), (1,))),
    "one branch before another": (nets.parallel, [["d2"], ["b1"]], {"stem": (1, 2), "d2": (2,)}),
    "tuples": (nets.tuples, [["k"], ["j"]], {"p": (1,), "r": (1,), "q": (2,), "k": (1,)}),
    "boundaries": (nets.boundaries, [["skip"], ["early", "both"], ["far"]], {"skip": (1, 2)}),
    "no input of the model": (nets.boundaries, [["both"], ["mid"]], {"both": (1,), "skip": (2,)}),
    "past two stages": (
        partial(net, SKIPPING, {"w": (4, 4), "v": (4, 4)}), [["s"], ["a"], ["b"]], {"s": (3,)}
    ),
    "parts of a weight": (partial(net, PARTS, {"w": (40, 80)}), [["b"]], {"b": (1,)}),
    "the shape of an earlier stage": (partial(net, SHAPED, SIZES), [["b"]], {"b": (1,)}),
}  # fmt: skip
FEW = ("tuples", "boundaries", "past two stages", "the shape of an earlier stage")
CASES = [n if n in FEW else pytest.param(n, marks=pytest.mark.integration) for n in ODD_CUTS]
IN_CI, SLOW = pytest.mark.integration, pytest.mark.slow
# The kinds of ops of the last two nets are in bvlc_alexnet too.
MARKS = {"branches": IN_CI, "transformer": IN_CI, "vgg19": SLOW, "zfnet512": SLOW}
ZOO = [pytest.param(n, marks=MARKS.get(n, (IN_CI, SLOW))) for n in catalog.NAMES]
# Legal cuts of each net, fused ops. A Dropout whose mask nobody reads is no op: its input passes
# through under its name.
CUTS = {
    "branches": (67, 19), "bvlc_alexnet": (22, 21), "densenet121": (243, 242),
    "inception_v1": (506, 91), "inception_v2": (636, 97), "resnet50": (69, 60),
    "shufflenet": (91, 78), "squeezenet": (50, 41), "transformer": (184, 61),
    "vgg19": (29, 28), "zfnet512": (22, 21),
}  # fmt: skip
BROUGHT = {
    "bert": partial(user_nets.text_net, 1, 128, 17),
    "gpt": partial(user_nets.text_net, 1, 128, 17, causal=True),
    "vit": partial(user_nets.vit, 1, 128, 48),
    "convnext": partial(user_nets.convnext, (1, 1), 24, 64),
    **{name: partial(make, size=64) for name, make in mobile_nets.NETS.items()},
}


@pytest.mark.parametrize("name", CASES)
def test_a_split_is_equal_in_every_runtime_and_as_an_export(save, tmp_path, name):
    make, after, readers = ODD_CUTS[name]
    model = api.load_model(save(make()))
    split = model.split(after)
    # Each of these tensors crosses the first cut once, to the stages that read it alone.
    connections = model.wiring(split.stages).connections
    sent = [(c.tensor, tuple(c.stages)) for c in connections if c.source[0] == 0 and c.stages]
    assert sorted(sent) == sorted(readers.items())
    for runtime in EXACT:
        judge(model, replace(model, runtime_name=runtime).split(after))
    split = replace(model, runtime_name=AUTO).split(after)
    replace(split, runtimes=(EXACT * 2)[: len(split.stages)]).export(tmp_path / "out")
    assert verify(tmp_path / "out").accuracy.equal


@pytest.mark.parametrize("name", ZOO)
def test_the_cuts_of_a_net_are_counted_and_one_op_a_stage_is_equal(zoo_model, name):
    model = zoo_model(name)
    count = cuts.count(model.graph)
    assert (count.complete, (count.total, len(model.graph.ops))) == (True, CUTS[name])
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


HALF = "g (float[4,64] x) => (float[4,64] y) {{ h = Cast<to=10>(x)  {}  y = Cast<to=1>(b) }}"


@pytest.mark.parametrize("after", [[["t"]], []])
def test_half_precision_inside_is_judged_as_such(save, tmp_path, after):
    text = HALF.format("a = MatMul(h, w)  t = Tanh(a)  b = MatMul(t, w)")
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float16)
    api.load_model(save(net(text, {"w": weight}))).split(after).export(tmp_path / "out")
    assert verify(tmp_path / "out").accuracy.equal


def test_half_precision_inside_one_fused_op_counts_too(save):
    model = api.load_model(save(net(HALF.format("t = Exp(h)  b = Sqrt(t)"))))
    assert {t.dtype for t in model.graph.tensors.values()} == {"float32"}
    assert model.lowered.dtypes == {"float32", "float16"}


FUNCTIONS = """<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
    g (float[2,4] x) => (float[2,4] y) { a = local.nested(x) b = Softmax(a) y = local.twice(b) }
    <domain: "local", opset_import: ["" : 17]> twice (x) => (y) {
        k = Constant<value = float {2.0}>() y = Mul(x, k) }
    <domain: "local", opset_import: ["" : 17, "local" : 1]> nested (x) => (y) {
        a = local.twice(x) y = Tanh(a) }"""


def of_ir_3():
    """Initialisers are inputs too, and stand before the one that the caller gives."""
    model = net(
        "g (float[4,4] w, float[2,4] x) => (float[2,4] y)"
        " { a = MatMul(x, w) b = Softmax(a) y = MatMul(b, w) }",
        {"w": (4, 4)},
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


def of_five_axes():
    """The result of a convolution meets a tensor of more axes."""
    text = "g (float[2,2,2,2] x) => (float[n,2,2,2,2] y) { a = Conv(x, w) y = Add(a, v) }"
    return net(text, {"w": (2, 2, 1, 1), "v": (2, 1, 1, 1, 1)})


# Of one weight, of a type that is not that of the convolution, and over neighbouring channels.
TRANSPOSED = """g (float[1,8,5,5] x) => (float[1,1,8,8] y, float[1,1,12,12] z) {
    y = ConvTranspose<strides=[1,1]>(x, w)  z = ConvTranspose<strides=[2,2]>(x, w)
}"""
DOUBLE = """g (float[1,8,5,5] x) => (double[1,8,5,5] y) {
    s = Softmax(x)  c = Conv(s, w)  d = Cast<to=11>(c)  y = Add(d, b)
}"""
POOLED = """g (float[1,8,5,5] x) => (float[1,1,7,5,5] y) {
    c = Conv(x, w)  u = Unsqueeze(c, axis)  y = AveragePool<kernel_shape=[2,1,1]>(u)
}"""
PACKED = [(TRANSPOSED, {"w": (8, 1, 4, 4)}),
          (DOUBLE, {"w": (8, 8, 1, 1), "b": np.linspace(0, 1, 8).reshape(8, 1, 1)}),
          (POOLED, {"w": (8, 8, 1, 1), "axis": np.array([1])})]  # fmt: skip


@pytest.mark.parametrize(
    "make",
    [functions, of_ir_3, of_five_axes, pytest.param(wide, marks=pytest.mark.integration),
     *(partial(net, *packed) for packed in PACKED)],
)  # fmt: skip
def test_an_odd_net_split_in_two_computes_the_same(save, make):
    model = api.load_model(save(make()))
    middle = model.graph.ops[(len(model.graph.ops) - 1) // 2].name
    judge(model, model.split([[middle]]))
