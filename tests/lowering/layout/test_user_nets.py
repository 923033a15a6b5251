"""Nets as users bring them, of fewer channels, compute what onnxruntime computes."""

from functools import partial

import pytest

from autosplit import api
from autosplit.hardware.devices.device import along
from autosplit.hardware.measurement.parity import compare
from tests import user_nets

pytest.importorskip("onnxruntime")
SMALL = {
    "bert": partial(user_nets.bert, 1, 128, 17),
    "gpt": partial(user_nets.gpt, 1, 128, 17),
    "vit": partial(user_nets.vit, 1, 128, 48),
    "convnext": partial(user_nets.convnext, (1, 1), 24, 64),
}


@pytest.mark.integration
@pytest.mark.parametrize("net", SMALL.values(), ids=SMALL)
def test_a_user_net_is_equal(save, net):
    model = api.load_model(save(net()))
    items = model.items(1)
    with model.unsplit(along(1)[0]) as pipeline:
        assert compare(pipeline.run(items), model.expected(items)).equal
    assert model.kernels.unscheduled == frozenset()
