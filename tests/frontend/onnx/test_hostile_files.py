"""ONNX files that are damaged, unsorted or meant to take for ever: read, or refused in one line."""

from unittest.mock import Mock

import numpy as np
import pytest
from onnx import StringStringEntryProto, TensorProto, helper, parser

import autosplit
from autosplit.errors import ModelError
from autosplit.frontend.onnx import branches, file
from tests.build import node, onnx_model
from tests.nets import net


def _functions(bodies):
    """A model that calls f0 of functions f0, f1 and so on, each a chain of calls."""
    opsets = 'opset_import: ["" : 17, "local" : 1]'
    text = f"<ir_version: 8, {opsets}> g (float[2,4] x) => (float[2,4] y) {{ y = local.f0(x) }}"
    for i, calls in enumerate(bodies):
        lines = "  ".join(f"a{j + 1} = {call}(a{j})" for j, call in enumerate(calls))
        text += f'<domain: "local", {opsets}> f{i} (a0) => (a{len(calls)}) {{ {lines} }}'
    return parser.parse_model(text)


def _calls(count, times=1):
    """Functions that call the next one so often, and one more."""
    return [*([f"local.f{i + 1}"] * times for i in range(count)), ["Relu"]]


@pytest.mark.parametrize(
    ("bodies", "message"),
    [
        (_calls(30, times=2), "more than 1000000 nodes once its functions are inlined"),
        ([["local.f0"]], "one calls itself, f0 -> f0"),
        (_calls(399), r"chain depth exceeds limit \(100\)"),
    ],
)
def test_functions_without_end_are_refused_before_they_are_inlined(save, bodies, message):
    with pytest.raises(ModelError, match=message):
        file.read(save(_functions(bodies)))
    file.read(save(_functions(_calls(80))))


_MANY = 2**18
_HUGE = np.array([2**20, 2**20], np.int64)
_ONE = np.ones((1, 1), np.float32)
_NUMBER = np.array(2**40, np.int64)
_TALL = np.ones((12000, 128), np.float32)
_IMAGE = np.ones((1, 1, 4, 4), np.float32)
_ROW = np.ones(4096, np.float32)
_MOST = "most = ReduceMax<keepdims=0>(big)  y = Add(x, most)"
_STEPS = "  ".join(f"v{i + 1} = Concat<axis=0>({', '.join([f'v{i}'] * 16)})" for i in range(9))
_DOUBLED = "  ".join(f"v{i + 1} = Concat<axis=0>(v{i}, v{i})" for i in range(36))
_DOUBLED = f"""v0 = Shape(x)  {_DOUBLED}  most = ReduceMax<keepdims=0>(v36)  yes = Cast<to=9>(most)
    y = If(yes) <then_branch = t () => (float[2,4] o) {{ o = Relu(x) }},
                 else_branch = e () => (float[2,4] p) {{ p = Relu(x) }}>"""
_LOOP = """end = Loop(a, b, c) <
        body = t (int64 i, bool go, float[4] s) => (bool go2, float[4] s2) {
            go2 = Identity(go)  s2 = Add(s, s)
        }>
    y = Add(x, end)"""


@pytest.mark.parametrize(
    ("lines", "weights", "message"),
    [
        *((f"big = {call}  {_MOST}", weights, r"'big' .* exceeds the limit of a model")
          for call, *weights in (
              ("Expand(a, b)", _ONE, _HUGE),
              ("Tile(a, b)", _ONE, _HUGE),
              ("Pad(a, b)", _ONE, np.tile(_HUGE, 2)),
              ("OneHot(a, b, c)", np.arange(4), _NUMBER[None], np.float32([0, 1])),
              ("Resize(a, b, c)", _IMAGE, np.float32([]), np.float32([1, 1, _MANY, _MANY])),
              (f"ConvTranspose<strides=[{_MANY},{_MANY}]>(a, b)", _IMAGE, _IMAGE),
              ('Einsum<equation="a,b,c->abc">(a, b, c)', _ROW, _ROW, _ROW),
              ("HannWindow(a)", _NUMBER),
              ("ConstantOfShape(a)", _HUGE),
              ("MatMul(a, b)", _TALL, _TALL.T.copy()),
              ('Einsum<equation="...a,...b,c->...">(a, b, c)', _ROW, _ROW, _ROW),
              (f"AveragePool<kernel_shape=[{_MANY},{_MANY}],pads={[_MANY // 2] * 4}>(a)", _IMAGE),
          )),
        # An op of another domain counts as the standard one.
        (f"steps = com.microsoft.Range(a, b, c)  big = Cast<to=1>(steps)  {_MOST}",
         [np.array(0), _NUMBER, np.array(1)], "makes 1,099,511,627,776 numbers of constants"),
        (f"v0 = Identity(a)  {_STEPS}  big = Identity(v9)  {_MOST}", [_ONE],
         r"'v7' .* makes 268,435,456 numbers of constants"),
        pytest.param(_DOUBLED, [], r"'v21' .* exceeds the limit", marks=pytest.mark.integration),
        (_LOOP, [_NUMBER, np.array(True), _ROW[:4]], "step by step; store its result as a weight"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)  # fmt: skip
def test_constants_that_grow_are_refused_before_they_are_computed(save, lines, weights, message):
    named = dict(zip("abc", weights, strict=False))
    model = net(f"g (float[2,4] x) => (float[2,4] y) {{ {lines} }}", named)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    with pytest.raises(ModelError, match=message):
        autosplit.load_model(save(model))


def test_constants_of_nodes_count_as_stored(save, monkeypatch):
    monkeypatch.setattr("autosplit.frontend.onnx.limits._MORE_ELEMENTS", 0)
    numbers = ", ".join(["1.5"] * 4)
    text = f"g (float[2,4] x) => (float[2,4] y) {{ w = Constant<value_floats=[{numbers}]>() "
    assert autosplit.load_model(save(net(text + "y = Add(x, w) }"))).graph.ops


def test_no_node_is_computed_for_each_of_the_ifs_behind_it(save, monkeypatch):
    results = Mock(wraps=branches.known_results)
    monkeypatch.setattr(branches, "known_results", results)
    chain = "d0 = Not(c)  "
    for i in range(6):
        one, other = (f"g{i}{op} () => (bool[1] {op}{i}) {{ {op}{i} = {op}(c) }}" for op in
                      ("Identity", "Not"))  # fmt: skip
        chain += f"c{i + 1} = If(d{i}) <then_branch = {one}, else_branch = {other}>  "
        chain += f"d{i + 1} = Not(c{i + 1})  "
    text = f"g (float[2,4] x) => (float[2,4] y) {{ {chain}  y = Where(d6, x, x) }}"
    autosplit.load_model(save(net(text, {"c": np.array([True])})))
    calls = [node.output[0] for _, node, *_ in (call.args for call in results.call_args_list)]
    assert calls.count("d0") == 1


def test_products_of_thin_constants_are_computed(save):
    thin = {"a": np.ones((4200, 2), np.float32), "b": np.ones((2, 1100), np.float32)}
    model = net(f"g (float[2,4] x) => (float[2,4] y) {{ big = MatMul(a, b)  {_MOST} }}", thin)
    assert autosplit.load_model(save(model)).graph.ops


@pytest.mark.parametrize(
    ("sizes", "call", "message"),
    [
        ("1,1,2,2", f"Max({', '.join(['x'] * 5000)})", "reads 5000 tensors; at most 4096"),
        ("20000", "SplitToSequence(x)", "sequences would hold more than 16384 tensors"),
        ("1,1,2,2", "Resize(x, , s)", "a tensor of 4,000,000,000,000,000,000 elements"),
    ],
    ids=["max", "split", "resize"],
)
def test_a_node_that_would_expand_without_limit_is_refused(save, sizes, call, message):
    scales = np.float32([1, 1, 1e9, 1e9])
    model = net(f"g (float[{sizes}] x) => (float[2,4] y) {{ y = {call} }}", {"s": scales})
    with pytest.raises(ModelError, match=rf"'y' \(\w+\) cannot be imported: .*{message}"):
        autosplit.load_model(save(model))


def test_a_tensor_of_many_rows_is_split_into_few(save):
    text = """g (float[20000,2] x) => (float[10000,4] y) {
        parts = SplitToSequence<axis=0>(x, rows)  y = ConcatFromSequence<axis=1>(parts)
    }"""
    model = autosplit.load_model(save(net(text, {"rows": np.array(10000)})))
    assert model.graph.tensors["y"].shape == (10000, 4)


def external(**entries):
    data = [StringStringEntryProto(key=key, value=value) for key, value in entries.items()]
    return TensorProto(name="w", data_type=1, dims=[4], data_location=1, external_data=data)


@pytest.mark.parametrize(
    "nodes",
    [[node("Relu", "x", "y", "PLACEHOLDER")], [node("Constant", "", "y", PLACEHOLDER=1.0)],
     *([node("Constant", "", "w", value=external(**entries)), node("Add", "x w", "y")]
       for entries in ({"location": "PLACEHOLDER"}, {"location": "w", "checksum": "PLACEHOLDER"}))],
)  # fmt: skip
def test_a_name_that_is_not_utf8_is_an_error_of_one_line(save, nodes):
    path = save(onnx_model(nodes))
    path.write_bytes(path.read_bytes().replace(b"PLACEHOLDER", b"\xff\xfePLACEHOLD"))
    (path.parent / "w").write_bytes(b"")
    with pytest.raises(ModelError, match=r"PLACEHOLD'; rename it in UTF-8|weight 'w' "):
        file.read(path)


@pytest.mark.parametrize(
    "lacking",
    [node("Shape", "", "a"), node("If", "", "a"), node("Constant", "", "a"), node("If", "a", "b"),
     node("Relu", "x", "", "n")],
    ids=["shape", "if", "constant", "no branches", "no output"],
)  # fmt: skip
def test_a_node_that_lacks_inputs_or_attributes_is_an_error_of_one_line(save, lacking):
    nodes = [lacking, node("Shape", "x", "s"), node("Relu", "x", "y")]
    if lacking.op_type != "If":
        nodes.append(node("If", "missing", "z"))
    with pytest.raises(ModelError):
        autosplit.load_model(save(onnx_model(nodes)))


@pytest.mark.parametrize("name", ["x\0y", "x" * 70_000])
def test_a_name_that_no_archive_of_arrays_holds_is_refused(save, name):
    path = save(onnx_model([node("Relu", "x", name, "n")]))
    with pytest.raises(ModelError, match=r"has the name 'x.*without null characters"):
        file.read(path)
