"""Small values that are known before the model runs."""

import numpy as np
import pytest

from autosplit import api
from autosplit.frontend.onnx import shape_arithmetic
from autosplit.hardware.measurement.parity import compare
from tests.build import node, onnx_model, value

pytest.importorskip("onnxruntime")
I64 = np.int64
HALVES = {"a": np.array([0], I64), "b": np.array([1], I64), "m": np.array([-1], I64)}


def ints(*values):
    return np.array(values, I64)


@pytest.mark.parametrize(
    ("nodes", "weights"),
    [
        (
            [
                node("Shape", "x", "s"),
                node("Slice", "s a b", "t"),
                node("Concat", "t m", "k", axis=0),
            ],
            HALVES,
        ),
        (
            [
                node("Shape", "x", "s"),
                node("Gather", "s z", "g"),
                node("Concat", "g m", "k", axis=0),
            ],
            {"z": ints(0), **HALVES},
        ),
        (
            [node("Shape", "x", "s"), node("Mul", "s h", "t"), node("Div", "t h", "k")],
            {"h": ints(2, 3, 4)},
        ),
        ([node("Shape", "x", "s"), node("Cast", "s", "f", to=1), node("Cast", "f", "k", to=7)], {}),
        ([node("Size", "x", "n"), node("Unsqueeze", "n a", "k")], HALVES),
        ([node("Constant", "", "k", value_ints=[6, 4])], {}),
        ([node("Shape", "x", "s"), node("Identity", "s", "k")], {}),
    ],
    ids=["slice", "gather", "arithmetic", "cast", "size", "constant", "identity"],
)
def test_a_computed_shape_is_a_constant(save, nodes, weights):
    model = api.load_model(
        save(
            onnx_model(
                [*nodes, node("Reshape", "x k", "y")], [value("x", (2, 3, 4))], weights=weights
            )
        )
    )
    assert [op.sources for op in model.graph.ops] == [("y",)]
    assert [f.name for f in model.graph.folded] == [n.name for n in nodes]
    items = model.items(1)
    with model.split([]).pipeline() as pipeline:
        assert compare(pipeline.run(items), model.expected(items)).equal


def test_a_shape_can_be_an_output(save):
    nodes = [node("Shape", "x", "s"), node("Relu", "x", "y")]
    model = api.load_model(save(onnx_model(nodes, outputs=["y", value("s", (2,), "INT64")])))
    with model.split([["y"]]).pipeline() as pipeline:
        assert pipeline.run(model.items(1))[0]["s"].tolist() == [1, 4]


@pytest.mark.parametrize(
    ("kind", "arrays"),
    [
        ("ConstantOfShape", [ints(10**12)]),
        ("Expand", [ints(1), ints(10**6, 10**6)]),
        ("Tile", [ints(1), ints(10**12)]),
        ("Range", [ints(0).reshape(()), ints(10**12).reshape(()), ints(1).reshape(())]),
        ("Range", [np.float32(0), np.float32(1), np.float32(1e-12)]),
        ("Add", [np.zeros(1025, np.float32), np.zeros(1, np.float32)]),
        ("Neg", [np.zeros(1025, I64)]),
        ("ConstantOfShape", [ints(1025)]),
        ("Einsum", [ints(1)]),
        ("Reshape", [np.arange(6), ints(4, 2)]),
    ],
)
def test_nothing_large_or_unknown_is_computed(kind, arrays):
    names = "abc"[: len(arrays)]
    assert (
        shape_arithmetic.evaluated(
            node(kind, " ".join(names), "y"), [shape_arithmetic.constant(a) for a in arrays], 17
        )
        is None
    )


@pytest.mark.parametrize(
    ("kind", "arrays", "expected"),
    [
        ("Expand", [ints(10**12), ints(2)], [10**12, 10**12]),
        ("Tile", [ints(2000), ints(2)], [2000, 2000]),
        (
            "Range",
            [ints(2000).reshape(()), ints(2002).reshape(()), ints(1).reshape(())],
            [2000, 2001],
        ),
        ("Neg", [np.ones(1024, I64)], [-1] * 1024),
    ],
)
def test_large_values_in_a_small_tensor_are_computed(kind, arrays, expected):
    names = " ".join("abc"[: len(arrays)])
    constants = [shape_arithmetic.constant(a) for a in arrays]
    (result,) = shape_arithmetic.evaluated(node(kind, names, "y"), constants, 17)
    assert result.value.numpy().tolist() == expected
