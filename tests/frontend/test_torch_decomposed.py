"""Torch ops that TVM's importer knows, but not in every form."""

import pytest

from autosplit import api
from autosplit.errors import ModelError
from tests.nets import judge

torch = pytest.importorskip("torch")


class Masked(torch.nn.Module):
    def forward(self, x):
        y = torch.nn.functional.pixel_shuffle(1 - x, 2)[:, 0]
        y = torch.nn.functional.layer_norm(y, (4,)) / y.std(-1, keepdim=True)
        return y.masked_fill(torch.ones(4, 4).triu(1) == 1, float("-inf")).softmax(-1)


class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(2, 2, num_layers=2, bidirectional=True, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0]


def loaded(net, *shape):
    torch.manual_seed(0)
    return api.load_model(torch.export.export(net.eval(), (torch.randn(shape),)))


def test_masks_of_infinity_integers_less_floats_and_shuffled_pixels_are_read():
    model = loaded(Masked(), 1, 4, 2, 2)
    judge(model, model.split([]))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"scale_factor": 1.3}, "scales 4 at axis 2 by 1.3"),
        ({"scale_factor": 0.5, "antialias": True}, "antialias"),
    ],
)
def test_an_interpolation_that_tvm_lacks_runs_in_onnxruntime(options, reason):
    class Resized(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.interpolate(x, mode="bilinear", **options)

    program = torch.export.export(Resized(), (torch.randn(1, 1, 4, 4),))
    with pytest.raises(ModelError, match="upsample_bilinear2d"):
        api.load_model(program).split([]).pipeline()
    model = api.load_model(program, runtime="onnxruntime")
    assert any(reason in op.opaque for op in model.graph.ops)
    judge(model, model.split([]))


@pytest.mark.slow
def test_an_lstm_of_several_layers_in_both_directions_is_split():
    model = loaded(Recurrent(), 1, 3, 2)
    judge(model, model.split([[model.graph.ops[len(model.graph.ops) // 2].name]]))
