"""Replicas on devices that differ, against all deployments."""

import math
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosplit.planner import CostModel, evaluate, plan_devices
from tests.planner.reference import all_splits
from tests.planner.strategies import models, with_runtimes, with_states


def periods(model: CostModel, count: int, runtime: str) -> dict[tuple[int, ...], list[float]]:
    """The load of every possible stage on each device in a runtime, infinite where it cannot be."""
    loads: dict[tuple[int, ...], list[float]] = {}
    groups = {r.name: r.separated_by for r in model.runtimes}
    is_parted = groups.get(runtime, lambda ops: False)
    for k in range(1, count + 1):
        for stages in all_splits(model, k):
            for d in range(count):
                costs = model.on_devices([d] * k)
                costs = costs.in_runtimes([runtime] * k) if runtime else costs
                plan = evaluate(costs, stages)
                limit = model.memory[d] if len(model.memory) > 1 else model.memory[0]
                for ops, load, memory in zip(stages, plan.loads, plan.memory, strict=True):
                    row = loads.setdefault(ops, [math.inf] * count)
                    is_whole = not is_parted(sum(1 << i for i in ops))
                    row[d] = load if memory <= limit and is_whole else math.inf
    return loads


def least_period(model: CostModel, count: int) -> float:
    """The least period of all splits and all choices of devices for their stages."""
    names = [runtime.name for runtime in model.runtimes] or [""]
    tables = [periods(model, count, name) for name in names]
    best = math.inf
    for k in range(1, count + 1):
        for stages, places in product(all_splits(model, k), product(range(-1, k), repeat=count)):
            period = 0.0
            for s, ops in enumerate(stages):
                devices = [d for d, place in enumerate(places) if place == s]
                dealt = streams_of(model, ops)
                period = max(period, min(rate_together(t[ops], devices, dealt) for t in tables))
            best = min(best, period)
    return best


def streams_of(model: CostModel, ops: tuple[int, ...]) -> int:
    """How many streams are dealt out to the replicas of a stage; 0 where it has no state."""
    return model.streams if any(mask >> op & 1 for _, mask in model.states for op in ops) else 0


def rate_together(loads: list[float], devices: list[int], dealt: int) -> float:
    chosen = [loads[d] for d in devices]
    if not chosen or math.inf in chosen:
        return math.inf
    if dealt:  # for a stream each they wait for the slowest
        return max(chosen) * len(range(0, dealt, len(chosen))) / dealt
    return 0.0 if 0.0 in chosen else 1 / sum(1 / load for load in chosen)


MODELS = models(most=4, devices=3, memory=True, groups=True, inputs=True, unsupported=True)


@given(st.one_of(MODELS, MODELS.flatmap(with_states)))
@settings(max_examples=25)
def test_no_deployment_is_faster(model: CostModel) -> None:
    plan = plan_devices(model, 3)
    assert (plan.period if plan else math.inf) == pytest.approx(least_period(model, 3))


@pytest.mark.integration
@given(st.data())
def test_no_deployment_is_faster_where_runtimes_compete(data: st.DataObject) -> None:
    model = data.draw(with_runtimes(data.draw(models(most=4)), devices=2))
    plan = plan_devices(model, 2)
    assert (plan.period if plan else math.inf) == pytest.approx(least_period(model, 2))


def test_a_slow_device_helps_the_stage_of_a_fast_one() -> None:
    chain = CostModel("c", ("a", "b"), (0, 1), ((6.0, 6.0), (12.0, 12.0), (12.0, 12.0)))
    plan = plan_devices(chain, 3)
    assert plan is not None
    # All rates together: 1/12 + 1/24 + 1/24.
    assert plan.period == pytest.approx(6.0)
    assert sorted(d for devices in plan.devices for d in devices) == [0, 1, 2]
    assert plan.loads == (plan.period,) * len(plan.stages)
