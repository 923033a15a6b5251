"""Odd graphs: every source node is somewhere once, outputs are right; what is refused."""

import re

import numpy as np
import pytest

from autosplit import api
from autosplit.errors import ModelError
from autosplit.hardware.devices.device import along
from autosplit.hardware.measurement.parity import compare
from autosplit.lowering.fuse import lowered
from tests import nets
from tests.build import node, onnx_model, value

ONES = np.ones((1, 4), np.float32)
BN = {k: np.linspace(0.5, 1.5, 3, dtype=np.float32) for k in "sbmv"}
SQUARE = [value("x", (4, 4))]
LONG = "block/" * 300
FIRST = {"a": np.array([0]), "b": np.array([3]), "w": np.eye(4, 5, dtype=np.float32)}


def odd(text, *ports, **options):
    """A net of nodes like ``a b = Split<axis=1>(x)``, apart by semicolons."""
    nodes = []
    for part in text.split("; "):
        pattern = r"(.*) = (\w+)(?:<(\w+)=(\d)>)?\((.*)\)"
        makes, kind, key, number, reads = re.fullmatch(pattern, part).groups()
        nodes.append(node(kind, reads, makes, **({key: int(number)} if key else {})))
    return onnx_model(nodes, *ports, **options)


ODD = {
    "one op": odd("y = Relu(x)"),
    "unnamed": onnx_model([node("Relu", "x", "a", ""), node("Exp", "a", "y", "")]),
    "names twice": onnx_model(
        [node("Relu", "x", "a", "n"), node("Exp", "a", "b", "n"), node("Neg", "b", "y", "n:a")]),
    "awkward names": onnx_model(
        [node("Relu", "x", "a:0/b", 'ä "ü"'), node("Exp", "a:0/b", "y", "src0_")]),
    "names of Relax": onnx_model([node("Relu", "x", "lv", "main"), node("Exp", "lv", "gv", "gv")],
        outputs=["gv"]),
    "weight as input": odd("y = Add(x w)", [value("x"), value("w")], weights={"w": ONES}),
    "weight as output": odd("y = Relu(x)", outputs=["y", "w"], weights={"w": ONES}),
    "weight alone": odd("y = Relu(x)", outputs=["w"], weights={"w": ONES}),
    "input as output": odd("y = Relu(x)", outputs=["x", "y"]),
    "known output": odd("y = Relu(x); c = Exp(w)", outputs=["y", "c"], weights={"w": ONES}),
    "no input": odd("y = Exp(w)", [], weights={"w": ONES}),
    "unread input": odd("y = Relu(x)", [value("x"), value("u")]),
    "identity output": odd("a = Relu(x); y = Identity(a)"),
    "identity of input": odd("a = Relu(x); y = Identity(x)", outputs=["a", "y"]),
    "two names": odd("a = Relu(x); y = Identity(a); z = Identity(a)", outputs=["a", "y", "z"]),
    "output twice": odd("y = Relu(x)", outputs=["y", "y"]),
    "dead": odd("d = Exp(x); y = Relu(x); e = Exp(d)"),
    "split": odd("a b = Split<axis=1>(x); y = Exp(a)"),
    "split as output": odd("a b = Split<axis=1>(x)", outputs=["a", "b"]),
    "dropout": odd("a = Relu(x); b m = Dropout(a); y = Exp(b)"),
    "views": odd("a = Flatten(x); b = Relu(a); y = Flatten(b)", outputs=["a", "y"]),
    "only a view": odd("y = Flatten(x)", [value("x", (2, 3, 4))]),
    "equal nodes": odd("a = Exp(x); b = Exp(x); y = MatMul(a b)", SQUARE),
    "equal parts": odd("a = Gemm(x w b); y = Gemm(x w a)", SQUARE,
        weights={"w": ONES.T @ ONES, "b": ONES}),
    "read twice": odd("a = MatMul(x x); y = Add(a x)", SQUARE),
    "batch norm": odd("y = BatchNormalization(x s b m v)", [value("x", (1, 3, 2, 2))], weights=BN),
    "batch norm after an output": odd(
        "c = Conv(x w); n = BatchNormalization(c s b m v); y = Relu(n)", [value("x", (1, 3, 2, 2))],
        ["y", "c"], {"w": np.linspace(-1, 1, 9, dtype=np.float32).reshape(3, 3, 1, 1), **BN}),
    "sorted": odd("v i = TopK(x k); y = Exp(v)", outputs=["y", value("i", None, "INT64")],
        weights={"k": np.array([2], np.int64)}),
    "added to itself": odd("a = Softmax(x); b = Add(a a); y = MatMul(b b)", SQUARE),
    "partly read": odd("r = Softmax(x); a b c = Split<axis=1>(r s); y = Softmax(a)",
        outputs=["b", "y"], weights={"s": np.array([2, 1, 1])}),
    "places alone": odd("v i = TopK(x k); f = Cast<to=1>(i); y = Softmax(f)",
        weights={"k": np.array([2])}),
    "constant node as output": onnx_model(
        [node("Softmax", "x", "y"), node("Constant", "", "c", value_ints=[3, 4])],
        outputs=["y", value("c", (2,), "INT64")]),
    "names of a weight": odd("y = Add(x w); c = Identity(w); d = Identity(w)",
        outputs=["y", "w", "c", "d"], weights={"w": ONES}),
    "names of an input": odd("y = Softmax(x); z = Identity(x)", outputs=["x", "y", "z"]),
    "scalars": odd("s = ReduceSum<keepdims=0>(x); e = Exp(s); f = Softmax(x); y = Mul(f e)",
        outputs=["y", "s"]),
    "nothing in it": odd("r = Softmax(x); a = Slice(r b b); q = Exp(a); y = Concat<axis=0>(q x)",
        outputs=["y", "a"], weights={"b": np.array([0])}),
    "whole numbers and booleans": odd(
        "m = Greater(x z); n = Not(m); i = ArgMax<axis=1>(x); q = Softmax(x); w = Where(n q x); "
        "y = Gather<axis=1>(w i)",
        outputs=["y", value("n", None, "BOOL"), value("i", None, "INT64")],
        weights={"z": np.float32(0)}),
    "long names": onnx_model(
        [node("Softmax", "x", LONG + "a", LONG), node("Exp", LONG + "a", LONG + "b", LONG + "c")],
        outputs=[LONG + "b"]),
    "names of paths": onnx_model(
        [node("Softmax", "../x", "/a", "../n"), node("Exp", "/a", "..", ".")], [value("../x")],
        [".."]),
    "names of ops": odd(
        "op1_exp = Softmax(x); op0_softmax.0 = Exp(op1_exp); y = MatMul(op0_softmax.0 x)", SQUARE),
    "marks of ours": odd("src0_ = Softmax(src1_); in0 = Exp(src0_); y = MatMul(in0 src1_)",
        [value("src1_", (4, 4))]),
    "names of each other": onnx_model(
        [node("Softmax", "x", "a", "b"), node("MatMul", "a a", "b", "a"),
         node("Softmax", "b", "y", "x")], SQUARE),
    "first rows": odd("f = Slice(x a b a); y = MatMul(f w)", [value("x", (6, 4))], weights=FIRST),
    "first rows of a batch": odd("f = Slice(x a b c); y = MatMul(f w)", [value("x", (1, 8, 4))],
        weights=FIRST | {"c": np.array([1])}),
    "skipping mask": odd("a = MatMul(x m); b = MatMul(a m); y = MatMul(b m)",
        [value("x", (4, 4)), value("m", (4, 4))]),
    "parts of a split": nets.tuples(),
}  # fmt: skip
# Some of each kind; the others compile much.
FEW = ("weight as output", "input as output", "views", "partly read", "scalars", "nothing in it")
CASES = [n if n in FEW else pytest.param(n, marks=pytest.mark.integration) for n in ODD]


@pytest.mark.parametrize("name", CASES)
def test_an_odd_graph_has_every_node_once_and_computes_the_same_whole_and_op_by_op(save, name):
    model = api.load_model(save(ODD[name]))
    places = [source for op in model.graph.ops for source in op.sources]
    places += [folded.name for folded in model.graph.folded]
    assert len(places) == len(set(places)) == len(ODD[name].graph.node)
    if name == "names twice":
        pytest.skip("onnxruntime refuses nodes of the same name")
    ops = range(len(model.graph.ops))
    for stages in {(tuple(ops),), tuple((i,) for i in ops)} if ops else ():
        nets.judge(model, api.Split(model, stages), items=2)


def test_any_rank_and_any_number_is_taken(save):
    shapes = {"a": (), "b": (5,), "c": (2, 3, 4, 5, 6)}
    kinds = ["FLOAT16", "FLOAT", "DOUBLE", "INT8", "INT32", "INT64", "UINT8"]
    ports = {name: (shape, "FLOAT") for name, shape in shapes.items()}
    ports |= {kind.lower(): ((4,), kind) for kind in kinds}
    ins, outs = ([value(mark + n, *port) for n, port in ports.items()] for mark in "xy")
    model = api.load_model(save(odd("; ".join(f"y{n} = Add(x{n} x{n})" for n in ports), ins, outs)))
    items = model.items(2)
    with model.split([]).pipeline() as pipeline:  # a number twice is exact in every type
        assert compare(pipeline.run(items), model.expected(items), 0.0).equal
    assert {n: model.graph.tensors[f"y{n}"].shape for n in shapes} == shapes
    assert all(model.graph.tensors[name].bytes == array.nbytes for name, array in items[0].items())


def test_folded_nodes_say_why(save):
    text = "c = Exp(w); i = Identity(x); dead = Exp(x); s = Shape(x); y = Add(i c)"
    graph = api.load_model(save(odd(text, weights={"w": ONES}))).graph
    assert {f.name: f.reason for f in graph.folded} == {
        **dict.fromkeys("cs", "constant: known without running the model"),
        "i": "identity: passes 'x' on", "dead": "dead: no output of the model needs it",
    }  # fmt: skip


def test_weights_are_counted_once(save):
    weights = {"w": np.eye(4, dtype=np.float32)}
    model = api.load_model(save(odd("a = MatMul(x w); y = MatMul(a w)", SQUARE, weights=weights)))
    assert model.lowered.weight_bytes == 64
    assert [op.weight_bytes for op in model.graph.ops] == [64, 64]


def test_a_computed_index_out_of_bounds_reads_nothing_else(save):
    table = np.arange(1, 9, dtype=np.float32).reshape(4, 2)
    ins, outs = [value("i", (1, 3), "INT64")], [value("y", (1, 3, 2))]
    weights = {"t": table, "k": np.array(1)}
    gather = odd("j = Sub(i k); g = Gather<axis=0>(t j); y = Relu(g)", ins, outs, weights=weights)
    with api.load_model(save(gather)).unsplit(along(1)[0]) as pipeline:
        (out,) = pipeline.run([{"i": np.array([[2, 0, 1 << 40]])}])
    assert np.array_equal(out["y"], table[[[1, 3, 3]]])


def test_the_node_that_cannot_be_lowered_is_named(save, monkeypatch):
    fuse = lowered.fuse

    def without_tanh(module, target):
        if "R.tanh" in module.script():
            raise ModelError("the model cannot be lowered for target llvm: no tanh")
        return fuse(module, target)

    monkeypatch.setattr(lowered, "fuse", without_tanh)
    text = "g (float[4] x) => (float[4] y) { a = Exp(x) b = Tanh(a) c = Neg(b) y = Add(c, x) }"
    with pytest.raises(ModelError, match=r"^node 'b' \(Tanh\): the model cannot be lowered"):
        api.load_model(save(nets.net(text)))
