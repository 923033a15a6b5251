"""Costs that depend on how many devices are busy."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from autosplit.planner import CostModel
from autosplit.planner.problem.contention import ContentionCosts, costs_at
from autosplit.planner.problem.runtime_costs import RuntimeCosts

INF = math.inf
ALONE = CostModel("m", ("a", "b"), (0, 1), ((1.0, 2.0),))
BUSY = replace(ALONE, times=((3.0, 10.0),))


@pytest.mark.parametrize(("busy", "times"), [(1, (1.0, 2.0)), (3, (2.0, 6.0)), (5, (3.0, 10.0))])
def test_times_grow_evenly_with_the_number_of_busy_devices(busy, times):
    assert ContentionCosts(ALONE, BUSY, 5).at(busy).times == (times,)


def test_the_level_is_zero_for_one_and_one_for_all():
    costs = ContentionCosts(ALONE, BUSY, 5)
    assert costs.level(np.array([1, 2, 5])).tolist() == [0, 0.25, 1]


def test_one_device_alone_is_all_of_them():
    costs = ContentionCosts(ALONE, BUSY, 1)
    assert costs.level(np.array([1, 1])).tolist() == [1, 1]
    assert costs.at(1) is BUSY


def test_costs_that_do_not_depend_on_the_number_stay_the_same():
    costs = ContentionCosts(ALONE, ALONE, 4)
    assert not costs.varies
    assert ContentionCosts(ALONE, BUSY, 4).varies
    assert all(costs.at(busy) is ALONE for busy in (1, 2, 3, 4))
    assert costs_at(ALONE, 3) is ALONE


def test_an_op_that_no_device_runs_stays_so():
    never = replace(ALONE, times=((INF, 2.0),)), replace(BUSY, times=((INF, 10.0),))
    assert costs_at(ContentionCosts(*never, 3), 2).times == ((INF, 6.0),)


def test_a_row_for_all_devices_meets_rows_of_each():
    each = replace(BUSY, times=((3.0, 10.0), (5.0, 4.0)))
    assert ContentionCosts(ALONE, each, 3).at(2).times == ((2.0, 6.0), (3.0, 3.0))


def test_the_least_of_the_runtimes_is_taken_where_the_devices_are_as_busy():
    """One runtime is fastest alone, the other where all are busy, and a third in between."""

    def model(*times: float) -> CostModel:
        names = ("quick", "steady", "even")
        runtimes = [
            RuntimeCosts(name, ((time, 1.0),), (0.5,))
            for name, time in zip(names, times, strict=True)
        ]
        least = min(times), 1.0
        return replace(ALONE, times=(least,), overheads=(0.5,), runtimes=tuple(runtimes))

    between = ContentionCosts(model(1.0, 4.0, 2.0), model(9.0, 4.0, 5.0), 3).at(2)
    assert between.times == ((3.5, 1.0),)
    assert [costs.times[0][0] for costs in between.runtimes] == [5.0, 4.0, 3.5]
    assert between.overheads == (0.5,)
