"""The planner on graphs too large for brute force, against a plain search over all their cuts."""

from dataclasses import replace
from random import Random

import pytest

from autosplit.errors import Infeasible
from autosplit.planner import Question, Row, RowCosts, partition
from tests.planner.graphs import in_runtimes, random_dag
from tests.planner.reference import least_period

TRANSFERS = (0.1, 0.5, 2.0, 0.0)


def require_least(costs, stages, cores=0):
    question = Question.of_cores(cores) if cores else Question.of_split(stages)
    least = least_period(costs, stages, cores)
    if least is None:
        with pytest.raises(Infeasible, match="memory"):
            partition(costs, question)
    else:
        assert partition(costs, question).period == pytest.approx(least, rel=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_splits_in_two_to_four_stages(seed):
    costs = random_dag(17, seed, transfer=TRANSFERS[seed])
    for stages in (2, 3, 4):
        require_least(costs, stages)


@pytest.mark.parametrize("memory", [3.0, 4.5, 6.0])
def test_memory_limits(memory):
    require_least(random_dag(16, 7, transfer=0.3, size=1.0, memory=memory), 3)


def test_groups_and_overheads():
    groups = 0b1010, 1 << 9 | 1 << 14
    require_least(random_dag(18, 3, transfer=0.3, overhead=0.7, groups=groups), 3)


@pytest.mark.parametrize("seed", range(4))
def test_runtimes_that_compete(seed):
    costs, random = random_dag(14, seed, transfer=TRANSFERS[seed]), Random(seed)
    times = tuple(time * random.uniform(0.5, 2) for time in costs.rows[0].times)
    other = RowCosts(Row(), times, 0.3, (0b11 << 4, 1 << 2 | 1 << 9))
    require_least(in_runtimes(costs, tvm=costs.rows[0], openvino=other), 3)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("memory", [float("inf"), 5.0])
def test_deployments_with_threads(seed, memory):
    options = {"transfer": TRANSFERS[seed], "size": 1.0, "memory": memory, "overhead": 0.2}
    costs = random_dag(14, seed, **options)
    one = costs.rows[0]
    fast = tuple(time / (2.2, 1.1)[i % 2] for i, time in enumerate(one.times))
    two = replace(one, row=Row(threads=2), times=fast)
    require_least(replace(costs, rows=(one, two)), 0, cores=4)
