"""The planner against a mixed-integer programme, on graphs too large for brute force."""

from dataclasses import replace
from random import Random

import pytest

from autosplit.errors import Infeasible
from autosplit.planner import Question, Row, RowCosts, partition
from tests.planner.graphs import in_runtimes, random_dag, with_overhead
from tests.planner.milp import least_period


def plan(model, stages):
    return partition(model, Question.of_split(stages))


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
    model = with_overhead(random_dag(18, 3, transfer=0.3), 0.7)
    model = replace(model, groups=(0b1010, 1 << 9 | 1 << 14))
    assert plan(model, 3).period == pytest.approx(least_period(model, 3), rel=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_runtimes_that_compete(seed):
    model, random = random_dag(14, seed, transfer=[0.1, 0.5, 2.0, 0.0][seed]), Random(seed)
    times = tuple(time * random.uniform(0.5, 2) for time in model.rows[0].times)
    other = RowCosts(Row(), times, 0.3, (0b11 << 4, 1 << 2 | 1 << 9))
    costs = in_runtimes(model, tvm=model.rows[0], openvino=other)
    assert plan(costs, 3).period == pytest.approx(least_period(costs, 3), rel=1e-6)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("memory", [float("inf"), 3.0])
def test_deployments_with_threads(seed, memory):
    model = random_dag(9, seed, transfer=[0.1, 0.6, 2.0][seed], size=1.0, memory=memory)
    one = model.rows[0]
    fast = tuple(time / (2.2, 1.1)[i % 2] for i, time in enumerate(one.times))
    two = replace(one, row=Row(threads=2), times=fast)
    model = with_overhead(replace(model, rows=(one, two)), 0.2)
    best = partition(model, Question.of_cores(4))
    assert best.period == pytest.approx(least_period(model, 4, cores=4), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_graphs_of_forty_ops(seed):
    model = random_dag(40, seed, transfer=[0.1, 0.5, 1.0][seed % 3])
    for stages in (2, 3, 4):
        assert plan(model, stages).period == pytest.approx(least_period(model, stages), rel=1e-6)
