"""Every zoo net in as many stages as it has fused ops."""

from __future__ import annotations

import pytest

from autosplit import api
from autosplit.zoo import catalog
from tests import nets

pytest.importorskip("onnxruntime")

FAST = ["branches", "transformer"]
EVERY = [
    *FAST,
    *(pytest.param(name, marks=pytest.mark.slow) for name in catalog.NAMES if name not in FAST),
]


@pytest.mark.parametrize("name", EVERY)
def test_one_op_a_stage_is_equal(zoo_model, name):
    model = zoo_model(name)
    nets.judge(model, api.Split(model, tuple((i,) for i in range(len(model.graph.ops)))), items=2)
