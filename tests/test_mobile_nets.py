"""Nets for phones, of fewer blocks, compute what onnxruntime computes."""

import pytest

from autosplit import api
from autosplit.hardware.devices.device import along
from autosplit.hardware.measurement.parity import compare
from tests import mobile_nets

pytest.importorskip("onnxruntime")


@pytest.mark.integration
@pytest.mark.parametrize("net", mobile_nets.NETS.values(), ids=mobile_nets.NETS)
def test_a_net_for_phones_is_equal(save, net):
    model = api.load_model(save(net(size=64)), runtime="tvm")
    items = model.items(2)
    expected = model.expected(items)
    assert compare(expected[1:], expected[:1]).max_rel_error > 0.1  # the input makes a difference
    with model.unsplit(along(1)[0]) as pipeline:
        assert compare(pipeline.run(items), expected).equal
