"""Deployments on cores of several kinds, against all deployments."""

import math
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosplit.errors import ConfigError, Infeasible
from autosplit.hardware.bench.simulated import chain_of
from autosplit.planner import CostModel, plan_cores, plan_deployment
from tests.planner.reference import all_splits, model_cost
from tests.planner.strategies import models, with_runtimes, with_states

CORES, COUNTS = (2, 1), (1, 2, 1)  # two large cores, of one or two threads, and a small one
SHAPES = [(1, 1, 0, 0), (2, 1, 0, 0), (1, 2, 0, 1), (1, 1, 1, 2)]  # replicas, threads, kind, row


def least_period(model):
    """The least period of all splits in all shapes."""
    periods = [math.inf]
    for count in (1, 2, 3):
        for stages, chosen in product(all_splits(model, count), product(SHAPES, repeat=count)):
            rows = [row for *_, row in chosen]
            _, latency, _, memory, loads = model_cost(model.on_devices(rows), stages)
            limits = [model.memory[row if len(model.memory) > 1 else 0] for row in rows]
            busy = [sum(r * w for r, w, k, _ in chosen if k == kind) for kind in (0, 1)]
            fits = latency < 10**12 and all(
                m <= limit for m, limit in zip(memory, limits, strict=True)
            )
            if fits and busy[0] <= CORES[0] and busy[1] <= CORES[1]:
                shares = [
                    model.streams / -(-model.streams // r) if model.has_state(ops) else r
                    for ops, (r, *_) in zip(stages, chosen, strict=True)
                ]
                periods.append(max(float(load) / n for load, n in zip(loads, shares, strict=True)))
    return min(periods)


def on_two_kinds(model):
    """The model where the first two rows are of the same cores, which move tensors alike."""
    tables = {}
    for key in ("send", "receive", "memory"):
        table = getattr(model, key)
        tables[key] = table if len(table) == 1 else (table[0], table[0], table[2])
    return replace(model, **tables)


MODELS = models(most=4, devices=3, memory=True, groups=True, inputs=True, unsupported=True).map(
    on_two_kinds
)


@given(
    st.one_of(MODELS, MODELS.flatmap(with_states), MODELS.flatmap(lambda m: with_runtimes(m, 3)))
)
@settings(max_examples=25)
def test_no_deployment_is_faster(model):
    try:
        plan = plan_cores(model, CORES, COUNTS)
    except Infeasible:
        assert least_period(model) == math.inf
        return
    assert plan.optimal
    assert plan.period == plan.lower_bound == pytest.approx(least_period(model))
    parts = list(zip(plan.replicas, plan.threads, plan.kinds, strict=True))
    for kind, most in enumerate(CORES):
        assert sum(r * w for r, w, k in parts if k == kind) <= most


def slow_and_fast(ops):
    _, chain = chain_of(ops, 0)
    rows = [tuple(time / speed for time in chain.times[0]) for speed in (1, 1.7, 0.4)]
    return CostModel(chain.name, chain.names, chain.predecessors, tuple(rows))


def test_cores_of_one_kind_are_planned_as_equal_cores():
    costs = slow_and_fast(12).on_devices([0, 1])
    assert plan_cores(costs, (4,), (1, 2)) == plan_deployment(costs, 4, thread_counts=(1, 2))
    two_threads = plan_cores(costs, (4,), (1, 2), fewest_threads=2)
    assert set(two_threads.threads) == {2}


def test_replicas_of_several_kinds_may_need_several_threads():
    plan = plan_cores(slow_and_fast(12), (2, 3), COUNTS, fewest_threads=2)
    assert set(plan.threads) == {2}
    with pytest.raises(Infeasible):
        plan_cores(slow_and_fast(12), (1, 1), COUNTS, fewest_threads=2)


def test_too_many_kinds_are_refused():
    with pytest.raises(ConfigError, match=r"19 \+ 19 \+ 19 cores of 3 kinds .* fewer cores"):
        plan_cores(slow_and_fast(3), (19,) * 3, (1,) * 3)
