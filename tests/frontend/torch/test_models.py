"""A small encoder of texts, and precisions."""

import pytest

import autosplit
from autosplit.errors import ModelError
from tests.nets import judge

torch = pytest.importorskip("torch")
nn = torch.nn

WORDS, WIDTH, LENGTH = 50, 16, 6
IDS = torch.arange(2 * LENGTH).reshape(2, LENGTH) % WORDS
ATTENDED = torch.ones(2, LENGTH, dtype=torch.int64)


class Encoder(nn.Module):
    """Words, positions, a mask and a layer."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True)

    def forward(self, ids, attended):
        positions = torch.arange(ids.shape[1], device=ids.device)[None]
        x = (self.words(ids) + self.positions(positions)) * ids.new_ones(ids.shape)[..., None]
        return self.layer(x, src_key_padding_mask=attended == 0)[:, 0]


def loaded(net, inputs, runtime="tvm"):
    torch.manual_seed(0)
    return autosplit.load_model(torch.export.export(net().eval(), inputs), runtime=runtime)


def layers(dtype, runtime="tvm"):
    net = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)).to(dtype)
    return loaded(lambda: net, (torch.ones(1, 4, dtype=dtype),), runtime)


def in_three_stages(model):
    names = [op.name for op in model.graph.ops]
    return model.split([[names[len(names) // 3]], [names[2 * len(names) // 3]]])


@pytest.mark.integration
def test_a_transformer_of_brain_floats_runs_in_tvm_alone():
    model = loaded(lambda: Encoder().bfloat16(), (IDS, ATTENDED))
    judge(model, in_three_stages(model), items=2)
    with pytest.raises(ModelError, match="; use --runtime tvm, or float32"):
        loaded(lambda: Encoder().bfloat16(), (IDS, ATTENDED), "onnxruntime").split([]).pipeline()


def test_layers_of_double_precision_run_in_onnxruntime():
    with pytest.raises(ModelError, match=r"node 'layer_norm' .* use --runtime onnxruntime"):
        layers(torch.float64).split([]).pipeline()
    model = layers(torch.float64, "onnxruntime")
    judge(model, model.split([["linear"]]), items=2)


def test_a_net_of_half_precision_is_split():
    judge(model := layers(torch.float16), model.split([]))


def test_an_input_of_brain_floats_is_refused_with_the_remedy():
    with pytest.raises(ModelError, match=r"input .* take float32"):
        layers(torch.bfloat16)
