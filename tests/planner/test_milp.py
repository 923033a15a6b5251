"""The planner against a mixed-integer programme, on graphs too large for brute force."""

from dataclasses import replace

import pytest

from autosplit.errors import Infeasible
from autosplit.planner import plan
from tests.planner.graphs import random_dag
from tests.planner.milp import least_period


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("stages", [2, 3])
def test_graphs_of_twenty_ops(seed, stages):
    model = random_dag(20, seed, transfer=[0.1, 0.5, 2.0, 0.0][seed])
    assert plan(model, stages).period == pytest.approx(least_period(model, stages), rel=1e-6)


@pytest.mark.parametrize("memory", [3.0, 4.5, 6.0])
def test_memory_limits(memory):
    model = random_dag(16, 7, transfer=0.3, size=1.0, memory=memory)
    expected = least_period(model, 3)
    if expected is None:
        with pytest.raises(Infeasible, match="memory"):
            plan(model, 3)
    else:
        assert plan(model, 3).period == pytest.approx(expected, rel=1e-6)


def test_groups_and_overheads():
    model = replace(
        random_dag(18, 3, transfer=0.3), groups=(0b1010, 1 << 9 | 1 << 14), overheads=(0.7,)
    )
    assert plan(model, 3).period == pytest.approx(least_period(model, 3), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_graphs_of_forty_ops(seed):
    model = random_dag(40, seed, transfer=[0.1, 0.5, 1.0][seed % 3])
    for stages in (2, 3, 4):
        assert plan(model, stages).period == pytest.approx(least_period(model, stages), rel=1e-6)
