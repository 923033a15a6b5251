"""NaN, infinities and denormals come out of TVM's kernels as onnxruntime gives them."""

import re

import numpy as np
import pytest

from autosplit import api
from autosplit.frontend.samples import special_items
from autosplit.hardware.devices.device import along
from tests.nets import net, onnxruntime_outputs

NAN, INF = np.nan, np.inf
SPECIAL = np.array(
    [NAN, INF, -INF, 1e-40, -1e-40, -0.0, 0.0, 1.5, -1.5, 3e38, -3e38, 90, -90, 9, -9, 0.5],
    np.float32,
)
PLAIN = [
    "Relu", "LeakyRelu<alpha=0.1>", "Elu", "Selu", "HardSigmoid", "HardSwish", "Sigmoid", "Tanh",
    "Erf", "Exp", "Cosh", "Sinh", "Atan", "Softplus", "Softsign", "Abs", "Neg", "Sqrt", "Log",
    "Floor", "Ceil", "Round", "Reciprocal",
]  # fmt: skip
ELEMENTWISE = [*(f"{op}(x)" for op in PLAIN), "PRelu(x, slope)", "Clip(x, low, high)"]
ELEMENTWISE += [f"{op}({reads})" for op in ("Max", "Min") for reads in ("x, zeros", "zeros, x")]
ELEMENTWISE += ["Sum(x, zeros)", "Mul(x, zero)", "Div(zero, x)", "Div(x, zero)"]
ELEMENTWISE += [f"Where(Not({op}(x, zeros)), x, slope)" for op in ("Less", "GreaterOrEqual")]
WEIGHTS = {
    "low": np.array(-1, np.float32),
    "high": np.array(2, np.float32),
    "slope": np.full(16, 0.25, np.float32),
    "zeros": np.zeros(16, np.float32),
    "zero": np.array(0, np.float32),
}
HALF = ["Cosh", "Sinh", "Atan", "Asin", "Acos", "Asinh", "Atanh", "Tan", "Erf"]
ROWS = ["ReduceMean<axes=[1]>(x)", "ReduceSum(x, axes)", "ReduceL2<axes=[1]>(x)", "Softmax(x)"]
ROWS += ["LogSoftmax(x)", "Max(x, other)"]
OF_ROWS = {"axes": np.array([1]), "other": np.full((6, 16), NAN, np.float32)}


def rows():
    """Rows that begin, go on or end with a special value."""
    x = np.linspace(-2, 2, 96, dtype=np.float32).reshape(6, 16)
    for row, value in enumerate((NAN, INF, -INF, 1e-40)):
        x[row, 3 * row + 2] = value
    x[4] = -INF
    return x


def both(save, kind, ops, weights, *arrays):
    """For each array and op its result from one TVM stage, and from onnxruntime."""
    outputs = [f"y{i}" for i in range(len(ops))]
    body = "  ".join(f"{name} = {op}" for name, op in zip(outputs, ops, strict=True))
    reads = {k: v for k, v in weights.items() if re.search(rf"\b{k}\b", body)}
    results = ", ".join(f"{kind.partition('[')[0]}[] {name}" for name in outputs)
    proto = net(f"g ({kind} x) => ({results}) {{ {body} }}", reads)
    for output in proto.graph.output:
        output.type.tensor_type.ClearField("shape")
    path = save(proto)
    model = api.load_model(path, target="llvm -mcpu=x86-64-v3")
    items = [{"x": x} for x in arrays]
    with model.unsplit(along(1)[0]) as pipeline:
        results = zip(arrays, pipeline.run(items), onnxruntime_outputs(path, items), strict=True)
    for x, actual, expected in results:
        for op, name in zip(ops, outputs, strict=True):
            yield op, x, actual[name], expected[name]


def assert_alike(actual, expected, op, rtol=1e-4):
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=1e-6, err_msg=op)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("kind", "ops", "weights", "x"),
    [("float[16]", ELEMENTWISE, WEIGHTS, SPECIAL), ("float[6,16]", ROWS, OF_ROWS, rows())],
    ids=["elements", "rows"],
)
def test_special_values_give_what_onnxruntime_gives(save, kind, ops, weights, x):
    for op, _, actual, expected in both(save, kind, ops, weights, x):
        assert_alike(actual, expected, op)


# Their range without the ends, where half precision has no place for what comes out.
@pytest.mark.integration
@pytest.mark.parametrize(("ops", "low", "high"), [(HALF, -0.875, 0.875), (["Acosh"], 1.125, 2)])
def test_functions_of_half_precision_give_what_onnxruntime_gives(save, ops, low, high):
    x = np.linspace(low, high, 16, dtype=np.float16)
    calls = [f"{op}(x)" for op in ops]
    for op, _, actual, expected in both(save, "float16[16]", calls, {}, x):
        assert_alike(actual, expected, op, rtol=2e-3)


# Of a window with a NaN onnxruntime's maximum gives the NaN or what comes after it, by their order,
# and a window of -inf alone is the largest negative number in some of its kernels. TVM's stages
# give what numpy gives.
def test_pools_and_maxima_of_rows_give_what_numpy_gives(save):
    arrays = []
    for value in (NAN, INF, -INF):
        for place in ((0, 0), (1, 2), (3, 3), (slice(4), slice(4))):
            arrays.append(np.linspace(-2, 2, 64, dtype=np.float32).reshape(1, 1, 8, 8))
            arrays[-1][0, 0][place] = value
    ops = [f"{op}<kernel_shape=[4,4],strides=[4,4]>(x)" for op in ("MaxPool", "AveragePool")]
    for op, x, actual, _ in both(save, "float[1,1,8,8]", ops, {}, *arrays):
        reduce = np.max if op.startswith("Max") else np.mean
        assert_alike(actual, reduce(x.reshape(1, 1, 2, 4, 2, 4), axis=(3, 5)), op)
    ops = ["ReduceMax<axes=[1]>(x)", "ReduceMin<axes=[1]>(x)"]
    for op, x, actual, _ in both(save, "float[6,16]", ops, {}, rows()):
        reduce = np.max if "Max" in op else np.min
        assert_alike(actual, reduce(x, axis=1, keepdims=True), op)


def test_special_items_hold_each_kind_of_value_among_random_ones():
    items = special_items([("x", (4, 64), "float32"), ("i", (3,), "int64")], 6, seed=1)
    arrays = [item["x"] for item in items]
    assert np.isnan(arrays[0]).any()
    assert np.isposinf(arrays[1]).any()
    assert np.isneginf(arrays[2]).any()
    assert all(np.isfinite(a).mean() > 0.9 for a in arrays)
    tiny = np.finfo(np.float32).tiny
    assert ((arrays[3] != 0) & (np.abs(arrays[3]) < tiny)).any()
    again = special_items([("x", (4, 64), "float32"), ("i", (3,), "int64")], 6, seed=1)
    np.testing.assert_array_equal(arrays[0], again[0]["x"])
