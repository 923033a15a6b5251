"""ONNX files that are damaged, unsorted or meant to take for ever: read, or refused in one line."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import autosplit
from autosplit.errors import ModelError
from autosplit.frontend.onnx import file
from tests.build import onnx_model, value
from tests.nets import net

FLOAT = TensorProto.FLOAT


def _model(nodes):
    return onnx_model(nodes, [value("x", (2, 4))], [value("y", (2, 4))])


def _functions(bodies):
    """A model of functions f0, f1 and so on, each a chain of (kind, domain)."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    functions = []
    for i, body in enumerate(bodies):
        names = ["x", *(f"a{j}" for j in range(1, len(body))), "y"]
        nodes = [
            helper.make_node(kind, [names[j]], [names[j + 1]], domain=domain)
            for j, (kind, domain) in enumerate(body)
        ]
        functions.append(helper.make_function("local", f"f{i}", ["x"], ["y"], nodes, opsets))
    model = _model([helper.make_node("f0", ["x"], ["y"], domain="local")])
    model.functions.extend(functions)
    return model


def _calls(count, times=1):
    """Functions that call the next one so often, and one more."""
    return [*([(f"f{i + 1}", "local")] * times for i in range(count)), [("Relu", "")]]


@pytest.mark.parametrize(
    ("bodies", "message"),
    [
        (_calls(30, times=2), "more than 1000000 nodes once its functions are inlined"),
        ([[("f0", "local")]], "one calls itself, f0 -> f0"),
        (_calls(399), r"chain depth exceeds limit \(100\)"),
    ],
)
def test_functions_without_end_are_refused_before_they_are_inlined(save, bodies, message):
    with pytest.raises(ModelError, match=message):
        file.read(save(_functions(bodies)))
    file.read(save(_functions(_calls(80))))


_HUGE = np.array([2**20, 2**20], np.int64)
_ONE = np.ones((1, 1), np.float32)
_NUMBER = np.array(2**40, np.int64)
_TALL = np.ones((12000, 128), np.float32)
_IMAGE = np.ones((1, 1, 4, 4), np.float32)


@pytest.mark.parametrize(
    ("kind", "attributes", "weights"),
    [
        ("Expand", {}, [_ONE, _HUGE]),
        ("Tile", {}, [_ONE, _HUGE]),
        ("Pad", {}, [_ONE, np.tile(_HUGE, 2)]),
        ("OneHot", {}, [np.arange(4), _NUMBER[None], np.float32([0, 1])]),
        ("Resize", {}, [_IMAGE, np.float32([]), np.float32([1, 1, 2**18, 2**18])]),
        ("ConvTranspose", {"strides": [2**18, 2**18]}, [_IMAGE, _IMAGE]),
        ("Einsum", {"equation": "a,b,c->abc"}, [np.ones(4096, np.float32)] * 3),
        ("HannWindow", {}, [_NUMBER]),
        ("ConstantOfShape", {}, [_HUGE]),
        ("MatMul", {}, [_TALL, _TALL.T.copy()]),
        ("Einsum", {"equation": "...a,...b,c->..."}, [np.ones(4096, np.float32)] * 3),
        ("AveragePool", {"kernel_shape": [2**18, 2**18], "pads": [2**17] * 4}, [_IMAGE]),
    ],
)
def test_constants_that_grow_are_refused_before_they_are_computed(save, kind, attributes, weights):
    names = [f"w{i}" for i in range(len(weights))]
    nodes = [
        helper.make_node(kind, names, ["big"], name="grow", **attributes),
        helper.make_node("ReduceMax", ["big"], ["most"], keepdims=0),
        helper.make_node("Add", ["x", "most"], ["y"]),
    ]
    model = _model(nodes)
    model.graph.initializer.extend(map(numpy_helper.from_array, weights, names))
    with pytest.raises(ModelError, match=rf"'grow' \({kind}\) .* exceeds the limit of a model"):
        autosplit.load_model(save(model))


_STEPS = "  ".join(f"v{i + 1} = Concat<axis=0>({', '.join([f'v{i}'] * 16)})" for i in range(9))
_DOUBLED = "  ".join(f"v{i + 1} = Concat<axis=0>(v{i}, v{i})" for i in range(36))
_DOUBLED = f"""v0 = Shape(x)  {_DOUBLED}  most = ReduceMax<keepdims=0>(v36)  yes = Cast<to=9>(most)
    y = If(yes) <then_branch = t () => (float[2,4] o) {{ o = Relu(x) }},
                 else_branch = e () => (float[2,4] p) {{ p = Relu(x) }}>"""
_LOOP = """end = Loop(trips, go, start) <
        body = b (int64 i, bool c, float[4] s) => (bool c2, float[4] s2) {
            c2 = Identity(c)  s2 = Add(s, s)
        }>
    y = Add(x, end)"""
_TRIPS = {"trips": np.array(2**40), "go": np.array(True), "start": (4,)}


@pytest.mark.parametrize(
    ("lines", "weights", "message"),
    [
        # An op of another domain counts as the standard one.
        ("""big = com.microsoft.Range(a, b, c)  floats = Cast<to=1>(big)
            most = ReduceMax<keepdims=0>(floats)  y = Add(x, most)""",
         {"a": np.array(0), "b": np.array(2**40), "c": np.array(1)},
         "makes 1,099,511,627,776 numbers of constants"),
        (f"{_STEPS}  most = ReduceMax<keepdims=0>(v9)  y = Add(x, most)", {"v0": (1, 1)},
         r"'v7' .* makes 268,435,456 numbers of constants"),
        pytest.param(_DOUBLED, {}, r"'v21' .* exceeds the limit", marks=pytest.mark.integration),
        (_LOOP, _TRIPS, "constant step by step; store its result as a weight"),
    ],
    ids=["domain", "steps", "doubled", "loop"],
)  # fmt: skip
def test_constants_that_grow_in_steps_are_refused_before_they_are_computed(
    save, lines, weights, message
):
    model = net(f"g (float[2,4] x) => (float[2,4] y) {{ {lines} }}", weights)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    with pytest.raises(ModelError, match=message):
        autosplit.load_model(save(model))


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (("Max", ["x"] * 5000, ["y"]), "reads 5000 tensors; at most 4096"),
        (("SplitToSequence", ["x"], ["y"]), "sequences would hold more than 16384 tensors"),
        (("Resize", ["x", "", "scales"], ["y"]), "a tensor of 4,000,000,000,000,000,000 elements"),
    ],
)
def test_a_node_that_would_expand_without_limit_is_refused(save, node, message):
    kind, names, results = node
    scales = numpy_helper.from_array(np.float32([1, 1, 1e9, 1e9]), "scales")
    model = _model([helper.make_node(kind, names, results)])
    sizes = [20000] if kind == "SplitToSequence" else [1, 1, 2, 2]
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", FLOAT, sizes))
    model.graph.initializer.append(scales)
    with pytest.raises(ModelError, match=rf"'y' \({kind}\) cannot be imported: .*{message}"):
        autosplit.load_model(save(model))


def test_a_tensor_of_many_rows_is_split_into_few(save):
    text = """g (float[20000,2] x) => (float[10000,4] y) {
        parts = SplitToSequence<axis=0>(x, rows)  y = ConcatFromSequence<axis=1>(parts)
    }"""
    model = autosplit.load_model(save(net(text, {"rows": np.array(10000)})))
    assert model.graph.tensors["y"].shape == (10000, 4)


def test_a_name_that_is_not_utf8_is_an_error_of_one_line(save):
    path = save(_model([helper.make_node("Relu", ["x"], ["y"], name="PLACEHOLDER")]))
    path.write_bytes(path.read_bytes().replace(b"PLACEHOLDER", b"\xff\xfePLACEHOLD"))
    with pytest.raises(ModelError, match="PLACEHOLD'; rename it in UTF-8"):
        file.read(path)


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("Shape", [], ["a"]),
        helper.make_node("If", [], ["a"]),
        helper.make_node("Constant", [], ["a"]),
        helper.make_node("If", ["a"], ["b"]),
        helper.make_node("Relu", ["x"], []),
    ],
    ids=["shape", "if", "constant", "no branches", "no output"],
)
def test_a_node_that_lacks_inputs_or_attributes_is_an_error_of_one_line(save, node):
    nodes = [node, helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Relu", ["x"], ["y"])]
    if node.op_type != "If":
        nodes.append(helper.make_node("If", ["missing"], ["z"]))
    with pytest.raises(ModelError):
        autosplit.load_model(save(_model(nodes)))


def test_a_model_without_ops_has_no_cuts(save, as_text):
    path = save(onnx_model([helper.make_node("Identity", ["x"], ["y"])], [value("x", (2,))], ["y"]))
    assert "0 cuts into two stages" in as_text("inspect", path)


@pytest.mark.parametrize("name", ["x\0y", "x" * 70_000])
def test_a_name_that_no_archive_of_arrays_holds_is_refused(save, name):
    path = save(_model([helper.make_node("Relu", ["x"], [name])]))
    with pytest.raises(ModelError, match=r"has the name 'x.*without null characters"):
        file.read(path)
