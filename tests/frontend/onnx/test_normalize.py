"""Nodes that TVM's converters misread are put into terms that they read, or left opaque."""

import numpy as np
import pytest

from autosplit import api
from autosplit.errors import ModelError
from tests.nets import judge, net

SCALES = np.array([1, 1, 2, 2], np.float32)
BOX, FIRST = np.array([[1, 2, 6, 7]], np.float32), np.array([0], np.int64)
EMPTY, LAST = np.zeros(0, np.float32), np.full((1, 3, 4, 1), -1)


def one(line, weights, opset):
    return net(f"g (float[1,3,4,4] x) => (float[n,c,h,w] y) {{ {line} }}", weights, opset=opset)


@pytest.mark.parametrize(
    "model",
    [
        one("y = Slice<starts=[1,1],ends=[-1,9],axes=[2,3]>(x)", {}, 9),
        one('y = Resize<mode="linear">(x, e, e, s)', {"e": EMPTY, "s": np.array([1, 3, 9, 7])}, 11),
        one("p = Pow(x, two)  y = Pow(p, half)", {"two": np.array(2), "half": np.array([0.5])}, 17),
        one("y, i = MaxPool<kernel_shape=[2,2]>(x)", {}, 17),
        one("l = Log(x)  e = Equal(l, l)  y = Where(e, l, x)", {}, 17),
        one('y = MaxPool<auto_pad="SAME_LOWER",kernel_shape=[3,1],strides=[3,3]>(x)', {}, 17),
        one("v, i = TopK<axis=3>(x, k)  y = Relu(v)", {"k": np.array([2])}, 10),
        one("y = Cast<to=1>(ArgMax<axis=3>(Cast<to=2>(Sub(x, x))))", {}, 17),
        one("y = Scatter<axis=3>(x, i, u)", {"i": LAST, "u": (1, 3, 4, 1)}, 9),
        one("y = Cast<to=1>(Mod(Mul(Cast<to=7>(Sum(x,x,x)),k),k))", {"k": np.array(2**62 + 1)}, 17),
        one("u = Unique(i)  y = Gather<axis=3>(x, u)", {"i": np.array([2, 0, 2])}, 17),
        one("y = Compress<axis=-1>(x, m)", {"m": np.array([True, False, True])}, 17),
        net("g (float[1,3,4,5] channels_last) => (float[1,3,4,5] y) { y = Relu(channels_last) }"),
        net("""g (float[2] x, int64[2] i) => (float[2] y, int64[2] z) {
            a = Constant<value_float=2.5>()  b = Constant<value_floats=[1.5, 2.5]>()
            c = Constant<value_int=3>()  d = Constant<value_ints=[4, 5]>()
            e = Add(x, a)  y = Add(e, b)  f = Add(i, c)  z = Add(f, d)
        }"""),
    ],
)  # fmt: skip
def test_every_spelling_is_read(save, model):
    loaded = api.load_model(save(model))
    judge(loaded, loaded.split([]), items=1)


@pytest.mark.parametrize(
    ("line", "dtype", "reason"),
    [('BitShift<direction="LEFT">', "uint8", "more bits than"), ("Mod<fmod=0>", "float", "fmod=1"),
     ("Mod", "int32", "by 0"), ("Div", "int8", "by 0"), ("Pow", "int64", "its base is int64")],
)  # fmt: skip
def test_operands_at_the_edges_are_left_to_another_runtime(save, line, dtype, reason):
    ports = f"g ({dtype}[4] x, {dtype}[4] z) => ({dtype}[4] y)"
    model = api.load_model(save(net(f"{ports} {{ y = {line}(x, z) }}")), runtime="onnxruntime")
    assert [reason in op.opaque for op in model.graph.ops] == [True]


@pytest.mark.parametrize(
    ("line", "weights", "opset", "reason"),
    [
        ('y = Resize<antialias=1,mode="linear">(x, , s)', {"s": SCALES}, 18, "without antialias"),
        ('y = Upsample<mode="linear">(x, s)', {"s": SCALES}, 9, "no Upsample"),
        ('y = Resize<coordinate_transformation_mode="half_pixel_symmetric">(x, , s)', {"s": SCALES},
         19, "no half_pixel_symmetric"),
        ("y = Resize(x, , s)", {"s": SCALES[::-1].copy()}, 18, "the axes after the second only"),
        ("y = Resize(x, , s)", {"s": SCALES * np.float32(0.65)}, 18, "which is not a whole size"),
        ("z, i = MaxPool<kernel_shape=[2,2]>(x)  y = Cast<to=1>(i)", {}, 17,
         "does not make its output 'i'"),
        ("m, y, i = LayerNormalization(x, s)", {"s": (4,)}, 17, "does not make its output 'y'"),
        ("z = IsInf<detect_negative=0>(x)  y = Cast<to=1>(z)", {}, 17, "infinities of both signs"),
        ('y = RoiAlign<mode="max">(x, r, b)', {"r": BOX, "b": FIRST}, 16, "at other places"),
        ("y = ConvTranspose<strides=[2,2],output_shape=[8,9]>(x, w)", {"w": (3, 2, 3, 3)}, 17,
         "ignores output_shape"),
        ('y = Resize<coordinate_transformation_mode="align_corners">(x, , , s)',
         {"s": np.array([1, 3, 1, 1])}, 18, "the corners of one pixel"),
        ("y = LayerNormalization<axis=2>(x, s)", {"s": (4,)}, 17, "the axes of its scale alone"),
        ("y = ScatterElements(x, i, u)", {"i": LAST, "u": (1, 3, 4, 1)}, 17, "along whole axes"),
        ("i = Cast<to=6>(x)  m = ReduceMean<axes=[3]>(i)  y = Cast<to=1>(m)", {}, 13, "mean of"),
        ("y = Attention(x, x, x)", {}, 23, "Attention of the ONNX standard"),
        ("q, s, z = DynamicQuantizeLinear(x)  y = Cast<to=1>(q)", {}, 17, "divides by 0"),
        ("y = GroupNormalization<num_groups=1>(x, v, v)", {"v": (3,)}, 21, "inexact for values"),
        ("z, m = Dropout(x, , off)  y = Cast<to=1>(m)", {"off": np.array(False)}, 17, "output 'm'"),
        ("y = ReduceLogSumExp<axes=[3]>(x)", {}, 17, "infinities"),
        ("i = ArgMax<axis=1,keepdims=0>(x)  y = OneHot<axis=1>(i, d, v)",
         {"d": np.array(3), "v": SCALES[1:3] * 0.1}, 17, "ignores the type of its values"),
    ],
)  # fmt: skip
def test_what_the_converter_would_ignore_makes_the_node_opaque(save, line, weights, opset, reason):
    model = api.load_model(save(one(line, weights, opset)), runtime="onnxruntime")
    assert [reason in op.opaque for op in model.graph.ops if op.opaque] == [True]
    judge(model, model.split([]), items=1)


def test_a_reduction_of_no_elements_is_left_to_another_runtime(save):
    kinds = ("Max", "Min", "Mean", "Prod")
    lines = "  ".join(f"r{k} = Reduce{k}<axes=[1],keepdims=0>(t)  y{k} = Relu(r{k})" for k in kinds)
    outputs = ", ".join(f"float[2,4] y{k}" for k in kinds)
    path = save(net(f"g (float[2,0,4] x) => ({outputs}) {{ t = Tanh(x)  {lines} }}"))
    model = api.load_model(path, runtime="onnxruntime")
    reasons = [op.opaque for op in model.graph.ops if op.opaque]
    assert reasons == ["TVM does not reduce a tensor without elements"] * 4
    judge(model, model.split([["t"]]), items=1)


def test_a_batch_norm_that_trains_and_a_conversion_to_float8_are_refused_by_name(save):
    line = "y = BatchNormalization<training_mode=1>(x, v, v, v, v)"
    with pytest.raises(ModelError, match=r"node 'y' .*training_mode=1"):
        api.load_model(save(one(line, {"v": (3,)}, 17)))
    with pytest.raises(ModelError, match=r"node 'z' .*neither saturates nor keeps NaN"):
        api.load_model(save(one("z = Cast<to=17>(x)  y = Cast<to=1>(z)", {}, 19)))


def test_a_further_result_of_an_op_of_onnxruntime_makes_it_opaque(save):
    line = "y, p = com.microsoft.Attention<num_heads=2>(x, w, b)"
    ports = "g (float[1,3,4] x) => (float[1,3,4] y, float[2,1,2,3,2] p)"
    proto = net(f"{ports} {{ {line} }}", {"w": (4, 12), "b": (12,)})
    proto.opset_import.add(domain="com.microsoft", version=1)
    model = api.load_model(save(proto), runtime="onnxruntime")
    assert ["does not make its output 'p'" in op.opaque for op in model.graph.ops] == [True]
    judge(model, model.split([]))
