import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.errors import ConfigError, Infeasible
from autosplit.planner import Question, Row, RowCosts, evaluate, partition, plan_split, problem
from autosplit.planner.evaluation import fits
from autosplit.planner.split import shared_bound
from tests.planner.graphs import chain, on_unlike_devices
from tests.planner.models import models

EIGHT = (1.0,) * 8


def devices_of(plan):
    return [stage.devices for stage in plan.stages]


def shared(*devices):
    """The costs of eight equal ops on devices of which some share cores, real and slowed."""
    model = chain(*EIGHT)
    cores = [device.removeprefix("cores:").split(",") for device in devices]
    users = [max(sum(core in other for other in cores) for core in each) for each in cores]

    def costs(factors):
        kinds = {d: replace(model.kinds[0], name=d) for d in devices}
        pairs = list(zip(devices, factors, strict=True))
        rows = {d: RowCosts(Row(d), tuple(t * factor for t in EIGHT)) for d, factor in pairs}
        return replace(model, rows=tuple(rows.values()), kinds=tuple(kinds.values()))

    return costs([1] * len(devices)), costs(users)


@pytest.mark.parametrize(
    ("devices", "first", "period", "optimal"),
    [
        (["cores:1", "cores:1"], 4.0, 8.0, True),  # as long as one stage
        (["cores:0", "cores:1", "cores:0"], 2.0, 4.0, True),  # each core has half
        (["cores:0,1", "cores:1"], 4.0, 8.0, False),  # what is in both sets is shared
    ],
)
def test_stages_that_share_a_core_add_up(devices, first, period, optimal):
    costs, slowed = shared(*devices)
    best = plan_split(costs, devices, len(devices), slowed=slowed)
    assert (best.loads[0], best.period, best.optimal) == (first, period, optimal)
    assert not optimal or best.lower_bound == period
    assert "share cores" in best.note


DEVICES = st.lists(st.sampled_from(["cores:0", "cores:1", "cores:0,1"]), min_size=1, max_size=3)


@given(DEVICES, st.lists(st.integers(1, 9), min_size=7, max_size=7))
def test_the_bound_of_shared_cores_is_below_every_split(devices, ends):
    costs, _ = shared(*devices)
    places = [0, *sorted(ends[: len(devices) - 1]), 9]
    busy = Counter()
    for device, (start, end) in zip(devices, pairwise(places), strict=True):
        for core in device.removeprefix("cores:").split(","):
            busy[core] += min(end, 8) - min(start, 8)
    assert shared_bound(costs, devices) <= max(*busy.values(), 1)


def test_devices_in_any_order_are_tried_and_named():
    model = on_unlike_devices(chain(5.0, 1.0), (5.0, 1.0), (5.0, 5.0))
    best = plan_split(model, ["0", "1"], 2, any_order=True)
    assert (devices_of(best), best.latency) == ([("1",), ("0",)], 6.0)
    assert devices_of(plan_split(model, ["0", "1"], 2)) == [("0",), ("1",)]


def test_of_more_devices_than_stages_the_best_are_used():
    model = on_unlike_devices(chain(4.0, 4.0), (4.0, 4.0), (2.0, 2.0), (2.0, 2.0))
    best = plan_split(model, ["0", "1", "2"], 2)
    assert (best.period, devices_of(best)) == (2.0, [("1",), ("2",)])
    with pytest.raises(ConfigError, match="4 stages on 3 devices"):
        plan_split(model, ["0", "1", "2"], 4)
    with pytest.raises(ConfigError, match="give as many stages as devices"):
        plan_split(model, ["0", "1", "2"], 2, empty=True)


def test_a_device_that_does_not_help_stays_unused():
    model = on_unlike_devices(chain(1.0, 1.0), (math.inf, 1.0), (1.0, 1.0))
    best = plan_split(model, ["0", "1"], 2, empty=True)
    assert (best.split, devices_of(best)) == (((0, 1),), [("1",)])
    with pytest.raises(Infeasible):
        plan_split(model, ["0", "1"], 2)


def test_a_slow_device_helps_the_stage_of_a_fast_one():
    model = on_unlike_devices(chain(6.0, 6.0), (6.0, 6.0), (120.0, 120.0), (120.0, 120.0))
    least = plan_split(model, ["0", "1", "2"], 3, replicas=True).period
    assert least == pytest.approx(1 / (1 / 12 + 1 / 240 + 1 / 240))  # all rates together
    question = Question(Counter(["0", "1", "2"]), replicas=True)
    assert partition(model, question, max_period=least).period == least


def test_what_was_not_searched_is_not_proven(monkeypatch):
    model = on_unlike_devices(chain(3.0), (3.0,), (6.0,))
    least = plan_split(model, ["0", "1"], 2, replicas=True).period
    monkeypatch.setattr(problem, "MOST_MIXES", 0)
    best = plan_split(model, ["0", "1"], 2, replicas=True)
    assert (best.lower_bound, best.period, best.optimal) == (pytest.approx(least), 3.0, False)
    assert "too many mixes of devices" in best.note
    with pytest.raises(Infeasible, match="was found among those that were searched"):
        partition(model, Question(Counter(["0", "1"]), replicas=True), max_period=least)


@given(st.data())
def test_a_placed_plan_costs_what_its_stages_cost(data):
    costs = data.draw(models())
    devices = [kind.name for kind in costs.kinds]
    try:
        best = plan_split(costs, devices, len(devices), any_order=True)
    except Infeasible:
        return
    again = evaluate(costs, best.stages)
    assert (again.loads, again.period) == (best.loads, best.period)
    assert fits(costs, again)
    assert sorted(d for names in devices_of(best) for d in names) == sorted(devices)
