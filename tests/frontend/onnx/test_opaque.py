"""Nodes that TVM cannot convert become opaque ops, which only other runtimes compute."""

import math

import numpy as np
import pytest

from autosplit import api
from autosplit.deploy.verify import verify
from autosplit.errors import ModelError, StageError
from autosplit.hardware.devices import device
from tests import nets

LSTM = """g (float[5,2,3] x) => (float[5,1,2,4] z) {
    a = Relu(x)  b = Mul(a, a)
    y, h = LSTM<hidden_size=4>(b, w, r)
    d = Add(y, h)  z = Exp(d)
}"""


@pytest.fixture
def lstm(save):
    return save(nets.net(LSTM, {"w": (1, 16, 3), "r": (1, 16, 4)}))


def opaque(model):
    return [op.sources for op in model.graph.ops if op.opaque]


def test_an_opaque_op_has_the_names_shapes_and_weights_of_its_node(lstm, as_text):
    graph = api.load_model(lstm).graph
    (op,) = [op for op in graph.ops if op.opaque]
    assert (op.sources, op.inputs, op.outputs) == (("y",), ("b",), ("y", "h"))
    assert [graph.tensors[t].shape for t in op.outputs] == [(5, 1, 2, 4), (1, 2, 4)]
    assert op.weight_bytes == 4 * (16 * 3 + 16 * 4)
    assert op.opaque == "TVM's importer has no LSTM"
    assert f"opaque: op1_opaque_LSTM ({op.opaque};" in as_text("inspect", lstm)


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_another_runtime_computes_it_wherever_the_cut_lies(lstm, runtime, tmp_path):
    model = api.load_model(lstm, runtime=runtime)
    for name in ("b", "y"):
        nets.judge(model, model.split([[name]]))
    model.split([["b"], ["y"]]).export(tmp_path / "out")
    assert verify(tmp_path / "out").accuracy.equal


@pytest.mark.parametrize("runtime", ["tvm", "onnxruntime"])
def test_its_time_is_infinite_in_tvm_alone(lstm, runtime):
    model = api.load_model(lstm, runtime=runtime)
    (core,) = device.along(1, ())
    profile = model.profile(core, seconds=0.01, force=True)
    assert [math.isinf(ms) for ms in profile.op_ms] == [False, runtime == "tvm", False]
    assert model.runtime.can_run(core) == (runtime != "tvm")


def test_tvm_alone_refuses_it_by_name_with_a_remedy(lstm):
    model = api.load_model(lstm)
    for refused in (lambda: api.plan(model, 2), model.split([["y"]]).pipeline):
        with pytest.raises(ModelError, match=r"node 'y' .* no LSTM; use --runtime onnxruntime"):
            refused()


@pytest.mark.parametrize(
    ("reads", "scans"),
    [("trips, yes, x", 0), ("n, yes, x", 0), ("trips, , x", 0), ("trips, yes, x", 1)],
    ids=["symbols", "any number of trips", "no condition", "scan output"],
)
def test_shapes_in_a_loop_are_inferred(save, reads, scans):
    scan, scan_type = (", r", ", float[u] so") if scans else ("", "")
    text = f"""g (float[2,3] x, int64 n) => (float[] z) {{
        a = Relu(x)
        q{scan} = Loop({reads}) <
            body = b (int64 i, bool c, float[s,t] v) => (bool co, float[s,t] vo{scan_type}) {{
                co = Identity(c)  vo = Add(v, a)  so = ReduceSum<keepdims=0>(v, one)
            }}>
        e = Exp(q)  f = {"Exp(r)" if scans else "Transpose(q)"}  z = MatMul(e, f)
    }}"""
    weights = {"yes": np.array(True), "trips": np.array(3), "one": np.array([1])}
    proto = nets.net(text, weights)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    model = api.load_model(save(proto), runtime="onnxruntime")
    shapes = {"q": (2, 3)} | ({"r": (3, 2)} if scans else {})
    assert {name: model.graph.tensors[name].shape for name in shapes} == shapes
    nets.judge(model, model.split([["a"], ["q"]]))


ENDING = """q, r = Loop(three, yes, x) <body = b (int64 j, bool c, float[2,3] v)
    => (bool co, float[2,3] vo, float[2,3] so) {
        most = ReduceMax<keepdims=0>(v)  co = Less(most, limit)  vo = Add(v, v)  so = Relu(v)
    }>
    z = Exp(r)"""
ON_DATA, TWO_SIZES = "size depends on the data", "(int64[4] y, int64[5] z)"


@pytest.mark.parametrize(
    ("ports", "lines", "reason"),
    [
        ("(float[2,3] x) => (float[a,b] z)", "n = NonZero(x)  z = Cast<to=1>(n)",
         f"node 'n' .* {ON_DATA}"),
        ("(float[1,4] x, bool[4] c) => (float[a,b] z)",
         "r = Relu(x)  q = Compress(r, c)  z = Relu(q)", f"node 'q' .* {ON_DATA}"),
        ("(float[1,4] x, int64[2] t) => (float[a,b] z)",
         "r = Relu(x)  q = Slice(r, t, t)  z = Relu(q)", f"node 'q' .* {ON_DATA}"),
        ("(float[2,4] x) => (float[a,b] z)", "z = SplitToSequence<axis=1>(x)",
         "output 'z' is not a tensor"),
        ("(float[2,3] x) => (float[a,b] z)", "s = StringNormalizer(x)  z = Cast<to=1>(s)",
         "onnxruntime refuses it"),
        ("(float[2,3] x) => (float[a,b] z)", "r = RandomNormalLike(x)  z = Add(x, r)",
         "node 'r' .* draws random numbers"),
        # A loop whose body may end it, and declared sizes that contradict each other.
        ("(float[2,3] x) => (float[a,b,c] z)", ENDING, f"node 'q' .* {ON_DATA}"),
        (f"(int64 n) => {TWO_SIZES}", "r = Range(i, n, k)  y = Neg(r)  z = Abs(r)",
         f"node 'r' .* {ON_DATA}"),
        (f"(int64[1] n, int64[2,3] x) => {TWO_SIZES}",
         "r = ReduceSum<keepdims=0>(x, n)  y = Neg(r)  z = Abs(r)", f"node 'r' .* {ON_DATA}"),
    ],
)  # fmt: skip
def test_what_no_runtime_can_split_is_refused_by_name(save, ports, lines, reason):
    numbers = {"three": np.array(3), "limit": np.array(9, np.float32), "yes": np.array(True)}
    weights = {"i": np.array(0), "k": np.array(1), **numbers}
    with pytest.raises(ModelError, match=reason):
        api.load_model(save(nets.net(f"g {ports} {{ {lines} }}", weights)))


def test_a_size_that_an_input_decides_is_the_declared_one(save):
    text = "g (float[1,3] x, int64[2] s) => (float[2,3] y) { a = Relu(x)  y = Expand(a, s) }"
    model = api.load_model(save(nets.net(text)), runtime="onnxruntime")
    assert opaque(model) == [("y",)]
    item = {"x": np.ones((1, 3), np.float32), "s": np.array([2, 3])}
    with model.split([["a"]]).pipeline() as pipeline:
        (outputs,) = pipeline.run([item])
    np.testing.assert_array_equal(outputs["y"], np.ones((2, 3)))


def test_a_size_that_an_input_decides_follows_from_what_comes_of_it(save):
    text = "g (int64 n) => (float[4] y) { r = Range(i, n, k)  f = Cast<to=1>(r)  y = Mul(f, f) }"
    weights = {"i": np.array(0), "k": np.array(1)}
    model = api.load_model(save(nets.net(text, weights)), runtime="onnxruntime")
    assert model.graph.tensors["r"].shape == (4,)
    with model.split([["r"]]).pipeline() as pipeline:
        (outputs,) = pipeline.run([{"n": np.array(4)}])
        np.testing.assert_array_equal(outputs["y"], [0, 1, 4, 9])
        with pytest.raises(StageError, match="invalid dimensions for input: r"):
            pipeline.run([{"n": np.array(5)}])


IF = """g (float[2,3] x) => (float[2,3] z) {{
    s = Shape(x)  d = Gather<axis=0>(s, one)  c = Equal(d, {size})  a = Relu(x)
    y = If(c) <then_branch = t () => (float[2,3] o) {{ k = Abs(a)  o = Exp(k) }},
               else_branch = e () => (float[N,M] p) {{ k = Neg(a)  p = Tanh(k) }}>
    k = Abs(y)  z = Sqrt(k)
}}"""


@pytest.mark.parametrize(("size", "branch"), [("three", "Exp"), ("one", "Tanh")])
def test_an_if_whose_condition_is_known_is_its_branch(save, size, branch):
    numbers = {"one": np.array(1), "three": np.array(3)}
    model = api.load_model(save(nets.net(IF.format(size=size), numbers)))
    assert opaque(model) == []
    assert branch.lower() in " ".join(op.kernel for op in model.graph.ops)
    nets.judge(model, model.split([]))


def test_a_number_of_a_branch_that_is_taken_can_decide_the_next_one(save):
    text = """g (float[2,3] x) => (float[2,3] y) {
        y = If(yes) <then_branch = t () => (float[2,3] o) {
            one = Constant<value_int=1>()  c = Cast<to=9>(one)
            o = If(c) <then_branch = u () => (float[2,3] q) { q = Exp(x) },
                       else_branch = v () => (float[2,3] r) { r = Tanh(x) }>
        }, else_branch = e () => (float[2,3] p) { p = Abs(x) }>
    }"""
    model = api.load_model(save(nets.net(text, {"yes": np.array(True)})))
    assert opaque(model) == []
    nets.judge(model, model.split([]))
