"""Ops that are decomposed because ONNX or TVM lacks them, compared with torch."""

from __future__ import annotations

import math

import pytest

import autosplit
from autosplit.hardware.measurement.parity import compare

torch = pytest.importorskip("torch")
functional = torch.nn.functional

X = torch.linspace(-2, 2, 24).reshape(4, 6).sin()
# Places and lengths of windows differ along each dimension.
IMAGE = torch.linspace(-9, 9, 378).reshape(2, 3, 7, 9).sin()
VOLUME = torch.linspace(-9, 9, 840).reshape(2, 3, 5, 7, 4).sin()
GAPS = torch.where((X * 97).int() % 5 == 0, torch.nan, X)


def outputs_are_equal(function, tensor):
    class Net(torch.nn.Module):
        def forward(self, x):
            return function(x)

    model = autosplit.load_model(torch.export.export(Net(), (tensor,)), runtime="tvm")
    assert not any(op.opaque for op in model.graph.ops)
    items = [{model.lowered.inputs[0].name: tensor.numpy()}]
    with model.split([]).pipeline(["cores:0"]) as pipeline:
        got = pipeline.run(items)
    expected = model.expected(items)
    assert compare(got, expected).equal
    assert [v.dtype for v in got[0].values()] == [v.dtype for v in expected[0].values()]


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x: x.amax() * 2, id="the largest"),
        pytest.param(lambda x: x.amin((0, -1), keepdim=True) * 2, id="the least"),
        pytest.param(lambda x: torch.aminmax(x, dim=1, keepdim=True), id="both of rows"),
        pytest.param(lambda x: torch.aminmax(x), id="both"),
        pytest.param(lambda x: (x * 4).int().cumprod(-1), id="products of integers"),
        pytest.param(
            lambda x: x.cumprod(0, dtype=torch.float64), id="products in double precision"
        ),
        pytest.param(lambda x: (x * 2).int().cummax(1), id="the largest so far, with ties"),
        pytest.param(lambda x: x.kthvalue(2, 0, True), id="the second of columns"),
        pytest.param(lambda x: x.kthvalue(2), id="the second of rows"),
        pytest.param(lambda x: torch.hstack([x, x * 2]), id="matrices side by side"),
        pytest.param(lambda x: torch.hstack([x[0], x[1] * 2, x[0, 0]]), id="rows side by side"),
        pytest.param(lambda x: torch.vstack([x * 2, x[0]]), id="rows below each other"),
        pytest.param(lambda x: torch.dstack([x, x * 2]), id="matrices behind each other"),
        pytest.param(lambda x: torch.column_stack([x, x[:, 0] * 2]), id="columns"),
        pytest.param(lambda x: torch.atleast_3d(x[0] * 2, x[0, 0])[0], id="three dimensions"),
        pytest.param(lambda x: torch.linalg.vander(x, N=4), id="powers"),
        pytest.param(lambda x: x[None, :, None].squeeze((0, 1, -2)) * 2, id="dimensions of size 1"),
        pytest.param(lambda x: torch.cdist(x, x * 2), id="distances"),
        pytest.param(lambda x: torch.cdist(x[None], x.flip(0), 3.0), id="distances by cubes"),
        pytest.param(lambda x: torch.cdist(x, x.flip(0), 1.0), id="distances along the axes"),
        pytest.param(lambda x: torch.cdist(x, x.flip(0), 0.0), id="numbers that differ"),
        pytest.param(lambda x: torch.cdist(x, x.flip(0), math.inf), id="largest distances"),
        pytest.param(lambda x: torch.divide(x, (x * 10).long() + 100), id="division of two types"),
        pytest.param(lambda x: torch.multiply(x, (x * 10).long()), id="product of two types"),
        pytest.param(lambda x: torch.subtract(x, (x * 10).long()), id="difference of two types"),
        pytest.param(lambda x: torch.masked.var(x, 1, mask=x > 0), id="variance of some"),
        pytest.param(lambda x: torch.cosh(x) + torch.sinh(x * 1e-4), id="hyperbolic functions"),
    ],
)
def test_matrices(function):
    outputs_are_equal(function, X)


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x: x.cummax(0), id="the largest so far"),
        pytest.param(lambda x: x.cummin(-1), id="the least so far"),
        pytest.param(lambda x: torch.fmax(x, x.flip(0)), id="the larger"),
        pytest.param(lambda x: torch.fmin(x, torch.tensor(0.1)), id="the lesser"),
    ],
)
def test_numbers_that_are_nan(function):
    outputs_are_equal(function, GAPS)


@pytest.mark.parametrize(
    ("function", "tensor"),
    [
        (lambda x: functional.adaptive_max_pool1d(x[0], 4, return_indices=True), IMAGE),
        (lambda x: functional.adaptive_max_pool2d(x, (3, 4)), IMAGE),
        (lambda x: functional.adaptive_max_pool2d(x, 1, return_indices=True), IMAGE),
        (lambda x: functional.adaptive_max_pool3d(x, (2, 3, 4), return_indices=True), VOLUME),
        (lambda x: functional.adaptive_avg_pool3d(x[0], (None, 3, 4)), VOLUME),
        (lambda x: functional.adaptive_avg_pool2d(x, (3, 4)), IMAGE),
    ],
)
def test_images_of_any_size_are_pooled_to_a_size(function, tensor):
    outputs_are_equal(function, tensor)
