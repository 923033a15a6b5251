"""Nodes of an ONNX graph: their names, their tensors, dropouts and small values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosplit import api
from autosplit.errors import ModelError
from autosplit.frontend.onnx import importer, shape_arithmetic
from autosplit.frontend.source import mark, marked
from tests.build import node, onnx_model, value
from tests.nets import judge, net

onnx = pytest.importorskip("onnx")


def named(*nodes: Any) -> list[str]:
    return [n.name for n in importer.source_nodes(onnx_model(nodes).graph)]


def test_a_node_goes_by_its_name_and_without_one_by_its_first_output() -> None:
    assert named(
        node("Relu", "x", "a", "first"), node("Split", "a", "b c", ""), node("Exp", "b", "d", "")
    ) == ["first", "b", "d"]


def test_nodes_of_one_name_are_told_apart_by_their_outputs() -> None:
    nodes = [node("Relu", "x", "a", "n"), node("Relu", "a", "b", "n"), node("Relu", "b", "c", "m")]
    assert named(*nodes) == ["n:a", "n:b", "m"]


def test_a_name_made_up_for_one_node_is_not_another_nodes_own() -> None:
    nodes = [
        node("Relu", "x", "a", "n"),
        node("Relu", "a", "b", "n"),
        node("Relu", "b", "c", "n:b"),
    ]
    assert named(*nodes) == ["n:a", "n:b:2", "n:b"]


@given(st.lists(st.sampled_from(["", "n", "n:t1", "t0", "t1:t1"]), min_size=1, max_size=6))
def test_every_node_has_a_name_of_its_own(names: list[str]) -> None:
    nodes = [node("Relu", f"t{i}", f"t{i + 1}", name) for i, name in enumerate(names)]
    unique_names = named(*nodes)
    assert len(set(unique_names)) == len(names)
    assert all(
        f == n
        for f, n in zip(unique_names, names, strict=True)
        if n and names.count(n) == 1 and unique_names.count(n) == 1
    )


def test_inputs_and_outputs_that_are_left_out_are_none() -> None:
    model = onnx_model([node("Resize", "x", "y")])
    del model.graph.node[0].input[:]
    model.graph.node[0].input.extend(["x", "", "s"])
    model.graph.node[0].output.append("")
    (source,) = importer.source_nodes(model.graph)
    assert (source.inputs, source.outputs) == (("x", "s"), ("y",))


@pytest.mark.parametrize("number", [0, 7, 123])
def test_a_mark_is_read_back_and_nothing_else_is_one(number: int) -> None:
    assert marked(mark(number)) == marked(mark(number) + "_1") == number
    assert [marked(name) for name in ("x", f"a{mark(number)}", f"src{number}", "src_")] == [
        None
    ] * 4


# dropout


def dropout(
    opset: int, attributes: dict[str, Any], inputs: str = "x", outputs: str = "y", **weights: Any
) -> Any:
    nodes = [node("Dropout", inputs, outputs, "drop", **attributes)]
    if " " in outputs:
        nodes.append(node("Cast", outputs.split()[1], "z", to=1))
    graph_outputs = ["y", "z"] if " " in outputs else ["y"]
    return onnx_model(nodes, outputs=graph_outputs, weights=weights, opset=opset)


OFF, ON, RATIO = np.array(False), np.array(True), np.array(0.5, np.float32)


@pytest.mark.parametrize(
    "model",
    [
        dropout(12, {}),
        dropout(13, {}, "x r", r=RATIO),
        dropout(13, {}, "x r t", r=RATIO, t=OFF),
        dropout(10, {"ratio": 0.5}),
        dropout(6, {"is_test": 1}),
        dropout(6, {}),
    ],
    ids=["plain", "ratio", "inference", "attribute", "is_test", "default"],
)
def test_a_dropout_whose_mask_nobody_reads_passes_its_input_on(save: Any, model: Any) -> None:
    model.graph.node.append(node("Relu", "y", "end"))
    model.graph.output[0].name = "end"
    loaded = api.load_model(save(model))
    assert [op.sources for op in loaded.graph.ops] == [("end",)]
    assert [f.reason for f in loaded.graph.folded] == ["identity: passes 'x' on"]


@pytest.mark.parametrize(
    "model",
    [
        dropout(13, {}, "x r t", r=RATIO, t=ON),
        dropout(13, {}, "x r t", "y m", r=RATIO, t=ON),
        dropout(6, {"is_test": 0}),
    ],
    ids=["mode", "mask", "is_test"],
)
def test_a_dropout_that_trains_is_refused_by_name(save: Any, model: Any) -> None:
    with pytest.raises(
        ModelError, match=r"node 'drop' \(Dropout\) cannot be imported: it drops values at random"
    ):
        api.load_model(save(model))


def test_a_dropout_that_is_told_at_run_time_whether_it_trains_is_refused(save: Any) -> None:
    model = dropout(13, {}, "x r t", r=RATIO)
    model.graph.input.append(value("t", (), "BOOL"))
    with pytest.raises(ModelError, match="it drops values at random"):
        api.load_model(save(model))


def test_a_mask_that_is_an_output_keeps_everything(save: Any) -> None:
    text = "g (float[1,4] x) => (float[1,4] z, bool[1,4] m) { y, m = Dropout(x)  z = Relu(y) }"
    model = api.load_model(save(net(text)))
    judge(model, model.split([]))


def test_a_mask_that_is_read_keeps_everything(save: Any) -> None:
    model = api.load_model(save(dropout(13, {}, "x r t", "y m", r=RATIO, t=OFF)))
    (item,) = model.items(1)
    with model.split([]).pipeline() as pipeline:
        (outputs,) = pipeline.run([item])
    np.testing.assert_array_equal(outputs["y"], item["x"])
    np.testing.assert_array_equal(outputs["z"], np.ones((1, 4), np.float32))


# values known before the model runs


def computed(
    kind: str,
    *arrays: Any,
    opset: int = 17,
    outputs: str = "y",
    domain: str = "",
    **attributes: Any,
) -> Any:
    names = " ".join("abc"[i] for i in range(len(arrays)))
    op = node(kind, names, outputs, domain=domain, **attributes)
    results = shape_arithmetic.evaluated(op, [shape_arithmetic.constant(a) for a in arrays], opset)
    return None if results is None else [result.value.numpy() for result in results]


SMALL = st.lists(st.integers(-5, 5), min_size=1, max_size=6).map(lambda v: np.array(v, np.int64))


@given(SMALL, st.integers(-3, 3))
@settings(deadline=None, max_examples=25)
def test_arithmetic_on_shapes_is_that_of_numpy(numbers: Any, other: int) -> None:
    scalar = np.array(other, np.int64)
    assert computed("Add", numbers, scalar)[0].tolist() == (numbers + other).tolist()
    assert computed("Concat", numbers, numbers, axis=0)[0].tolist() == [*numbers, *numbers]
    assert computed("Neg", numbers)[0].dtype == np.int64


@pytest.mark.parametrize(("size", "small"), [(1024, True), (1025, False)])
def test_as_much_as_a_shape_can_hold_is_computed(size: int, small: bool) -> None:
    assert (computed("Neg", np.zeros(size, np.int64)) is not None) == small
    assert (computed("Add", np.zeros(size - 1, np.int64), np.array(1)) is not None) == small
    assert (computed("ConstantOfShape", np.array([size])) is not None) == small
    assert (
        computed("Expand", np.array(1), np.array([2, size // 2 + size % 2])) is not None
    ) == small


def test_a_range_of_whole_numbers_is_computed_and_one_of_fractions_is_not() -> None:
    assert computed("Range", np.array(2), np.array(9), np.array(3))[0].tolist() == [2, 5, 8]
    assert computed("Range", np.float32(0), np.float32(3), np.float32(1)) is None


def test_what_fails_to_compute_is_left_to_the_importer() -> None:
    assert computed("Reshape", np.arange(6), np.array([4, 2])) is None


def test_an_op_of_another_domain_is_not_what_its_name_says() -> None:
    assert computed("Neg", np.array([1]))[0].tolist() == [-1]
    assert computed("Neg", np.array([1]), domain="acme") is None


def test_several_results_are_computed_where_all_are_asked_for() -> None:
    left, right = computed("Split", np.arange(4), outputs="y z", axis=0, num_outputs=2, opset=18)
    assert (left.tolist(), right.tolist()) == ([0, 1], [2, 3])


def test_nothing_is_computed_of_nothing_or_of_what_is_not_known() -> None:
    from tvm import relax

    assert shape_arithmetic.evaluated(node("Add", "a b", "y"), [], 17) is None
    assert (
        shape_arithmetic.evaluated(
            node("Neg", "a", "y"), [relax.Var("a", relax.TensorType((2,), "int64"))], 17
        )
        is None
    )


def test_the_size_of_a_tensor_of_known_shape_is_known_though_its_values_are_not() -> None:
    import tvm
    from tvm import relax

    size = node("Size", "a", "y")
    (count,) = (
        shape_arithmetic.evaluated(
            size, [relax.Var("a", relax.TensorType((2, 3, 4), "float32"))], 17
        )
        or ()
    )
    assert (count.value.numpy().tolist(), str(count.value.dtype)) == (24, "int64")
    unknown = relax.TensorType((tvm.tirx.Var("n", "int64"), 3), "float32")
    assert shape_arithmetic.evaluated(size, [relax.Var("a", unknown)], 17) is None


def test_a_shape_of_fixed_sizes_is_a_constant() -> None:
    import tvm
    from tvm import relax

    shape = shape_arithmetic.fixed_shape(relax.ShapeExpr([2, 3]))
    assert shape is not None
    assert (shape.value.numpy().tolist(), str(shape.value.dtype)) == ([2, 3], "int64")
    assert shape_arithmetic.fixed_shape(relax.ShapeExpr([tvm.tirx.Var("n", "int64")])) is None
    assert shape_arithmetic.fixed_shape(relax.const(1.0)) is None


# what the importer reads otherwise


@pytest.mark.parametrize(
    ("attribute", "values", "kind"),
    [
        ("value_float", 2.5, "FLOAT"),
        ("value_floats", [1.5, 2.5], "FLOAT"),
        ("value_int", 3, "INT64"),
        ("value_ints", [4, 5], "INT64"),
    ],
)
def test_a_constant_of_any_spelling_is_its_value(
    save: Any, attribute: str, values: Any, kind: str
) -> None:
    x = value("x", (2,), kind)
    nodes = [node("Constant", "", "c", **{attribute: values}), node("Add", "x c", "y")]
    model = api.load_model(save(onnx_model(nodes, [x], [value("y", (2,), kind)])))
    (item,) = model.items(1)
    with model.split([]).pipeline() as pipeline:
        output = pipeline.run([item])[0]["y"]
    np.testing.assert_allclose(output, item["x"] + np.array(values, item["x"].dtype), rtol=1e-6)


@pytest.mark.parametrize("message", ["In ir.Op(relax.add), the first", "the first"])
def test_a_reason_is_told_without_the_dump_before_it(message: str) -> None:
    assert importer._reason(ValueError(f"{message}\nmore")) == "the first"
