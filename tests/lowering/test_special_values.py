"""NaN, infinities and denormals come out of TVM's kernels as onnxruntime gives them."""

import numpy as np
import onnxruntime
import pytest

from autosplit import api
from autosplit.frontend.samples import special_items
from autosplit.hardware.devices.device import along
from tests.nets import net

NAN, INF = np.nan, np.inf
SPECIAL = np.array(
    [NAN, INF, -INF, 1e-40, -1e-40, -0.0, 0.0, 1.5, -1.5, 3e38, -3e38, 90, -90, 9, -9, 0.5],
    np.float32,
)
LIMITS = {"low": np.array(-1, np.float32), "high": np.array(2, np.float32)}
ZEROS = {"zeros": np.zeros(16, np.float32)}
AXES = {"axes": np.array([1])}

ELEMENTWISE = {
    "Relu(x)": {},
    "LeakyRelu<alpha=0.1>(x)": {},
    "PRelu(x, slope)": {"slope": np.full(16, 0.25, np.float32)},
    "Elu(x)": {},
    "Selu(x)": {},
    "Clip(x, low, high)": LIMITS,
    "HardSigmoid(x)": {},
    "HardSwish(x)": {},
    "Sigmoid(x)": {},
    "Tanh(x)": {},
    "Erf(x)": {},
    "Exp(x)": {},
    "Cosh(x)": {},
    "Sinh(x)": {},
    "Atan(x)": {},
    "Softplus(x)": {},
    "Softsign(x)": {},
    "Max(x, zeros)": ZEROS,
    "Max(zeros, x)": ZEROS,
    "Min(x, zeros)": ZEROS,
    "Min(zeros, x)": ZEROS,
    "Sum(x, zeros)": ZEROS,
    "Abs(x)": {},
    "Neg(x)": {},
    "Sqrt(x)": {},
    "Log(x)": {},
    "Floor(x)": {},
    "Ceil(x)": {},
    "Round(x)": {},
    "Reciprocal(x)": {},
}
ROWS = {
    "ReduceMean<axes=[1]>(x)": {},
    "ReduceSum(x, axes)": AXES,
    "ReduceL2<axes=[1]>(x)": {},
    "Softmax(x)": {},
    "LogSoftmax(x)": {},
    "Max(x, other)": {"other": np.full((6, 16), NAN, np.float32)},
}


def rows():
    """Rows that begin, go on or end with a special value."""
    x = np.linspace(-2, 2, 96, dtype=np.float32).reshape(6, 16)
    for row, value in enumerate((NAN, INF, -INF, 1e-40)):
        x[row, 3 * row + 2] = value
    x[4] = -INF
    return x


def both(save, text, weights, x):
    """The output of a net from one TVM stage, and from onnxruntime."""
    path = save(net(text, weights))
    model = api.load_model(path, target="llvm -mcpu=x86-64-v3")
    with model.unsplit(along(1)[0]) as pipeline:
        (outputs,) = pipeline.run([{"x": x}])
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return outputs["y"], session.run(["y"], {"x": x})[0]


def assert_alike(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("op", ELEMENTWISE)
def test_elementwise_ops_give_what_onnxruntime_gives(save, op):
    text = f"g (float[16] x) => (float[16] y) {{ y = {op} }}"
    assert_alike(*both(save, text, ELEMENTWISE[op], SPECIAL))


@pytest.mark.parametrize(
    "op", ["Cosh", "Sinh", "Atan", "Asin", "Acos", "Asinh", "Acosh", "Atanh", "Tan", "Erf"]
)
def test_functions_of_half_precision_give_what_onnxruntime_gives(save, op):
    # Their range without the ends, where half precision has no place for what comes out.
    low, high = (1.125, 2) if op == "Acosh" else (-0.875, 0.875)
    x = np.linspace(low, high, 16, dtype=np.float16)
    text = f"g (float16[16] x) => (float16[16] y) {{ y = {op}(x) }}"
    actual, expected = both(save, text, {}, x)
    np.testing.assert_allclose(actual, expected, rtol=2e-3)


@pytest.mark.parametrize("op", ROWS)
def test_rows_with_a_special_value_give_what_onnxruntime_gives(save, op):
    text = f"g (float[6,16] x) => (float[A,B] y) {{ y = {op} }}"
    assert_alike(*both(save, text, ROWS[op], rows()))


# Of a window with a NaN onnxruntime's maximum gives the NaN or what comes after it, by their order,
# and a window of -inf alone is the largest negative number in some of its kernels. TVM's stages
# give what numpy gives.
@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("place", [(0, 0), (1, 2), (3, 3), (slice(4), slice(4))])
@pytest.mark.parametrize(("op", "reduce"), [("MaxPool", np.max), ("AveragePool", np.mean)])
def test_pools_give_what_numpy_gives(save, op, reduce, value, place):
    x = np.linspace(-2, 2, 64, dtype=np.float32).reshape(1, 1, 8, 8)
    x[0, 0][place] = value
    pool = f"{op}<kernel_shape=[4,4],strides=[4,4]>(x)"
    text = f"g (float[1,1,8,8] x) => (float[1,1,2,2] y) {{ y = {pool} }}"
    actual, _ = both(save, text, {}, x)
    windows = x.reshape(1, 1, 2, 4, 2, 4)
    assert_alike(actual, reduce(windows, axis=(3, 5)))


@pytest.mark.parametrize(("op", "reduce"), [("ReduceMax", np.max), ("ReduceMin", np.min)])
def test_a_maximum_of_a_row_gives_what_numpy_gives(save, op, reduce):
    x = rows()
    text = f"g (float[6,16] x) => (float[6,1] y) {{ y = {op}<axes=[1]>(x) }}"
    actual, _ = both(save, text, {}, x)
    assert_alike(actual, reduce(x, axis=1, keepdims=True))


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
