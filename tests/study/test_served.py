"""What a deployment serves by the simulation."""

import pytest

from autosplit.deployment import Stage
from autosplit.planner.workload import Workload
from autosplit.study.served import served

TIGHT = Workload(limit_ms=30.0)  # for batches that take 20 ms


def test_a_batch_waits_as_long_as_serves_most():
    stages = (Stage.on([0], "tvm", ["cpu:0", "cpu:1"], batch=16),)
    rate, delay = served(TIGHT, stages, [20 / 16], 10 / 16)
    assert delay == pytest.approx(9)
    fixed = Workload(limit_ms=30.0, delay_ms=0.0)
    assert rate > 300 > served(fixed, stages, [20 / 16], 10 / 16)[0]


def test_a_single_item_does_not_wait():
    stages = (Stage.on([0], "tvm", ["cpu:0"]),)
    assert served(TIGHT, stages, [20.0], 20.0)[1] == 0
