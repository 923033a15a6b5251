import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosplit import api
from autosplit.hardware.devices.device import along
from autosplit.lowering.layout.tiles import Registers, padded_channels, padded_width, tile_of
from tests.build import node, onnx_model, value
from tests.nets import judge

# The widest registers of this machine, and those of AVX2 and SSE2.
TARGETS = st.sampled_from([None, "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64"])


@st.composite
def convolutions(draw):
    """A convolution of rows or images, what is fused behind it, and a pool or a sum."""
    axes = draw(st.sampled_from([1, 2, 2]))
    groups = draw(st.sampled_from([1, 1, 1, 2, 3]))
    inputs = groups * draw(st.integers(1, 9))
    outputs = groups * draw(st.integers(1, 37))
    if draw(st.integers(0, 4)) == 0:
        groups, outputs = inputs, inputs * draw(st.sampled_from([1, 1, 2]))
    several = {"min_size": axes, "max_size": axes}
    attributes = {
        "kernel_shape": draw(st.lists(st.integers(1, 3), **several)),
        "strides": draw(st.lists(st.integers(1, 3), **several)),
        "pads": draw(st.lists(st.integers(0, 2), min_size=2 * axes, max_size=2 * axes)),
        "group": groups,
    }
    kind = draw(st.sampled_from(["Conv", "Conv", "ConvTranspose"]))
    channels = (outputs, inputs // groups)
    if kind == "Conv":
        attributes["dilations"] = draw(st.lists(st.integers(1, 2), **several))
    else:
        channels = (inputs, outputs // groups)
        extra = st.integers(0, min(attributes["strides"]) - 1)
        attributes["output_padding"] = draw(st.lists(extra, **several))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    last = draw(st.sampled_from(["Relu", "Sigmoid", "GlobalAveragePool", "Flatten", "Softmax"]))
    nodes = [node(kind, "x w b", "c", **attributes), node("Mul", "c s", "d"), node(last, "d", "y")]
    weights = {
        "w": rng.standard_normal((*channels, *attributes["kernel_shape"]), np.float32) / 3,
        "b": rng.standard_normal(outputs, np.float32),
        "s": rng.standard_normal((outputs, *[1] * axes), np.float32),
    }
    sizes = [draw(st.integers(5, 31)) if axis == axes - 1 else 7 for axis in range(axes)]
    batch = draw(st.integers(1, 5))
    return onnx_model(nodes, [value("x", (batch, inputs, *sizes))], ["y"], weights)


@st.composite
def products(draw):
    """A matrix product with a constant or a computed right-hand side, and what is fused behind."""
    rows, depth, columns = (draw(st.integers(1, 40)) for _ in range(3))
    batch = draw(st.sampled_from([(), (1,), (3,), (2, 3)]))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    inputs = [value("x", (*batch, rows, depth))]
    weights = {"b": rng.standard_normal(columns, np.float32)}
    right = draw(st.sampled_from(["constant", "computed", "broadcast"]))
    if right == "constant":
        weights["w"] = rng.standard_normal((depth, columns), np.float32)
    else:
        shape = batch if right == "computed" else batch[-1:]
        inputs.append(value("w", (*shape, depth, columns)))
    last = draw(st.sampled_from(["Erf", "Softmax", "Relu", "Tanh"]))
    nodes = [node("MatMul", "x w", "m"), node("Add", "m b", "a"), node(last, "a", "y")]
    return onnx_model(nodes, inputs, ["y"], weights)


@st.composite
def quantised(draw):
    """A convolution of bytes between two quantisations, with the zero point of the first."""
    inputs, outputs = 4 * draw(st.integers(1, 5)), 16 * draw(st.integers(1, 3))
    kernel, stride = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    pads, zero = draw(st.sampled_from([(1, 0), (0, 0), (0, 7), (1, 7)]))
    is_signed = draw(st.booleans())
    kind = np.int8 if is_signed else np.uint8
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    weights = {
        "w": rng.integers(-127, 128, (outputs, inputs, kernel, kernel), np.int8),
        "ws": rng.random(outputs, np.float32) / 500 + np.float32(1e-4),
        "wz": np.zeros(outputs, np.int8),
        "s": np.array(0.02, np.float32),
        "z": np.array(zero - 128 if is_signed else zero, kind),
    }
    nodes = [
        node("QuantizeLinear", "x s z", "xq"),
        node("DequantizeLinear", "xq s z", "xd"),
        node("DequantizeLinear", "w ws wz", "wd", axis=0),
        node("Conv", "xd wd", "c", strides=[stride] * 2, pads=[pads] * 4),
        node("Relu", "c", "y"),
    ]
    sizes = (draw(st.integers(1, 3)), inputs, draw(st.integers(4, 9)), draw(st.integers(4, 19)))
    return onnx_model(nodes, [value("x", sizes)], ["y"], weights)


@pytest.mark.integration
@pytest.mark.parametrize("nets", [convolutions, products, quantised])
@settings(derandomize=True, max_examples=15)
@given(st.data(), TARGETS)
def test_random_nets_are_equal_whole_and_op_by_op(save, nets, data, target):
    model = api.load_model(save(data.draw(nets())), target=target)
    judge(model, model.unsplit(along(1)[0]), items=1)
    judge(model, model.split([[op.name] for op in model.graph.ops[:-1]]), items=1)


REGISTERS = st.sampled_from([Registers(32, 16), Registers(16, 8), Registers(16, 4)])
SIZES = st.integers(1, 300)


@given(SIZES, SIZES, SIZES, REGISTERS)
def test_a_tile_fits_and_divides_what_it_has_to(height, width, channels, registers):
    padded = padded_channels(channels, registers)
    tile = tile_of(height, width, padded, registers)
    rows = tile.height * tile.width
    assert rows * tile.vectors + tile.vectors + 1 <= registers.count
    assert height % tile.height == 0
    assert padded % tile.channels == 0
    assert 0 <= padded_width(width, tile) - width < tile.width
    assert channels <= padded < channels + 2 * registers.lanes
    assert padded % min(padded, registers.lanes) == 0
