"""Programs of functions, and one list of ONNX functions for all programs."""

import functools

import pytest


@pytest.fixture(scope="session", autouse=True)
def _functions_read_once():
    """Read the functions of torch's exporter once: half of the time that a small program takes."""
    registration = pytest.importorskip("torch.onnx._internal.exporter._registration")
    registry = registration.ONNXRegistry
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            registry, "from_torchlib", staticmethod(functools.cache(registry.from_torchlib))
        )
        yield


def exported(function, *arguments, **options):
    """The program of a function of tensors."""
    import torch

    class Net(torch.nn.Module):
        def forward(self, x, *more):
            return function(x, *more)

    return torch.export.export(Net(), arguments, **options)
