"""When convolutions are computed by Winograd's filtering, and that it computes the same."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autosplit import api
from autosplit.errors import ConfigError
from autosplit.hardware.devices.device import Cores
from autosplit.hardware.measurement.parity import compare
from autosplit.lowering.layout import winograd
from autosplit.lowering.layout.shape import ConvolutionShape
from autosplit.lowering.layout.tiles import Registers
from tests.build import node, onnx_model, value

WIDE = Registers(32, 16)
SHAPE = {
    "rank": 4, "batch": 1, "height": 14, "width": 14, "channels": 64, "out_height": 14,
    "out_width": 14, "out_channels": 32, "kernel": (3, 3), "strides": (1, 1),
    "dilation": (1, 1), "padding": (1, 1, 1, 1), "groups": 1, "is_image": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"out_height": 13, "out_width": 13}, True),
        ({"out_height": 7, "out_width": 7}, False),  # a third of the tiles would be appended
        ({"kernel": (3, 1)}, False),
        ({"strides": (2, 2)}, False),
        ({"dilation": (2, 2)}, False),
        ({"groups": 2}, False),
        ({"is_image": True, "channels": 16}, False),
        ({"channels": 24}, False),
        ({"out_channels": 24}, False),
    ],
)
def test_only_plain_kernels_of_three_by_three_are_filtered(change, expected):
    shape = ConvolutionShape(**SHAPE | change)
    assert winograd.fits(shape, np.dtype("float32"), WIDE) is expected
    assert not winograd.fits(shape, np.dtype("int8"), WIDE)


@given(st.integers(1, 200), st.integers(1, 200))
def test_rows_at_once_divide_the_rows_and_are_no_more_than_needed(rows, columns):
    at_once = winograd.rows_at_once(rows, columns)
    assert rows % at_once == 0
    fewer = [r for r in range(1, at_once) if rows % r == 0]
    assert all(r * columns < 28 for r in fewer)


def test_transformed_weights_of_a_single_middle_pixel_are_outer_products():
    weight = np.zeros((16, 1, 3, 3), np.float32)
    weight[:, :, 1, 1] = 4
    positions = winograd.transformed_weight(weight, 16)[:, 0, 0, 0].reshape(4, 4)
    np.testing.assert_array_equal(positions, np.outer([0, 1, -1, 0], [0, 1, -1, 0]))


def is_filtered(model):
    return any(winograd.OUTPUT in str(kernel) for kernel in model.lowered.kernels.values())


def check(path, target=None, threads=1):
    """The kernel is equal to onnxruntime, and a rule schedules it."""
    model = api.load_model(path, target=target, precision="fast")
    items = model.items(1)
    pipeline = model.whole("tvm", Cores(tuple(range(threads))))
    with pipeline:
        accuracy = compare(pipeline.run(items), model.expected(items))
    assert accuracy.equal
    assert accuracy.max_rel_error < 2e-5
    assert not model.kernels.unscheduled
    assert is_filtered(model)


def net(sizes, channels, pads, batch=1, last="Relu"):
    rng = np.random.default_rng(0)
    inputs, outputs = channels
    weights = {
        "w": rng.standard_normal((outputs, inputs, 3, 3), np.float32) / 3,
        "b": rng.standard_normal(outputs, np.float32),
    }
    nodes = [node("Conv", "x w b", "c", kernel_shape=[3, 3], pads=pads), node(last, "c", "y")]
    return onnx_model(nodes, [value("x", (batch, inputs, *sizes))], ["y"], weights)


def test_odd_sizes_and_unequal_padding_are_equal_with_two_threads(save):
    check(save(net((13, 22), (16, 48), [0, 1, 1, 0], 2)), threads=2)


def test_by_default_nothing_is_filtered(save):
    assert not is_filtered(api.load_model(save(net((14, 14), (16, 16), [1, 1, 1, 1]))))


def test_an_unknown_precision_is_refused(save):
    with pytest.raises(ConfigError, match="'half'"):
        api.load_model(save(net((14, 14), (16, 16), [1, 1, 1, 1])), precision="half")


@pytest.mark.integration
@settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    sizes=st.tuples(st.integers(11, 40), st.integers(11, 40)),
    channels=st.tuples(st.sampled_from([16, 32, 80]), st.sampled_from([16, 48, 96, 208])),
    pads=st.lists(st.integers(0, 2), min_size=4, max_size=4),
    batch=st.integers(1, 5),
    last=st.sampled_from(["Relu", "Sigmoid", "Neg", "GlobalAveragePool", "Flatten"]),
    target=st.sampled_from([None, "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64"]),
)
def test_random_sizes_are_equal(save, sizes, channels, pads, batch, last, target):
    check(save(net(sizes, channels, pads, batch, last)), target)
