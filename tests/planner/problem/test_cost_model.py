"""The cost model: what it refuses by name, and what its views of devices and groups hold."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import permutations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosplit.cuts import members, orders
from autosplit.errors import ConfigError, GraphError, Infeasible, SplitError
from autosplit.planner import (
    CostModel,
    Link,
    Transfer,
    decode,
    evaluate,
    k_best,
    least_latency,
    pareto_front,
    plan,
    shares_of,
)
from autosplit.planner.decode import spread_places
from autosplit.planner.problem.runtime_costs import RuntimeCosts
from autosplit.planner.solve import kinds_of
from tests.planner.graphs import parallel_chains
from tests.planner.reference import brute_force, model_cost
from tests.planner.strategies import models

INF, NAN = math.inf, math.nan
PAIR = CostModel("m", ("a", "b"), (0, 1), ((1.0, 2.0),), (Transfer("t", 0, (1,), 8.0),))
CHAIN = parallel_chains(1, 6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"times": ((1.0, -1.0),)}, "the time of 'b' is -1.0"),
        ({"times": ((NAN, 1.0),)}, "the time of 'a' is nan"),
        ({"send": ((-0.5,),)}, "the transfer cost of 't' is -0.5"),
        ({"receive": ((INF,),)}, "the transfer cost of 't' is inf"),
        ({"sizes": (1.0, INF)}, "the size of 'b' is inf"),
        ({"overheads": (1.0, -2.0)}, "the overhead of '1' is -2.0"),
        ({"overheads": (INF,)}, "the overhead of '0' is inf"),
        ({"memory": (NAN,)}, "the memory of '0' is nan"),
        ({"times": ((1.0,),)}, "times of device 0 has 1 values; give 2"),
        ({"times": ((1.0, 1.0), (1.0,))}, "times of device 1 has 1 values; give 2"),
        ({"send": ((1.0, 2.0),)}, "send of device 0 has 2 values; give 1"),
        ({"receive": ((),) * 2}, "receive of device 0 has 0 values; give 1"),
        ({"predecessors": (2, 0)}, "op 'a' reads from 'b', which comes later"),
        ({"predecessors": (0, 2)}, "op 'b' reads from 'b', which comes later"),
    ],
)
def test_a_cost_that_cannot_be_is_named(changes, message):
    with pytest.raises(GraphError, match=message):
        replace(PAIR, **changes)


@pytest.mark.parametrize(
    "changes",
    [{"times": ((1.0, INF),)}, {"memory": (INF,)}, {"memory": (0.0,)}, {"overheads": (0.0,)}],
)
def test_a_cost_at_the_edge_is_taken(changes):
    assert replace(PAIR, **changes).names == ("a", "b")


@pytest.mark.parametrize(
    "changes",
    [{"times": ((1.0, 2.0),) * 2, "memory": (1.0,) * 3}, {"overheads": ()}, {"times": ()}],
)
def test_tables_for_different_numbers_of_devices_are_refused(changes):
    with pytest.raises(ConfigError, match="cost tables"):
        replace(PAIR, **changes)


@pytest.mark.parametrize(
    ("changes", "devices"),
    [
        ({}, None),
        ({"times": ((1.0, 2.0),) * 3}, 3),
        ({"memory": (1.0, 2.0)}, 2),
        ({"send": ((0.0,),) * 2, "overheads": (1.0, 2.0)}, 2),
    ],
)
def test_a_model_tells_as_many_devices_apart_as_its_longest_table(changes, devices):
    assert replace(PAIR, **changes).devices == devices


def test_a_link_costs_its_latency_and_the_bytes_over_its_bandwidth():
    assert Link(4.0, 0.5).cost(10) == 3.0
    assert Link().cost(1e18) == 0.0


def test_only_some_devices_can_run_what_is_placed():
    result = PAIR.only_on([1], {0, 2}, 3)
    assert result.times == ((1.0, 2.0), (1.0, INF), (1.0, 2.0))
    apart = replace(PAIR, times=((1.0, 2.0), (3.0, 4.0))).only_on([0], {1}, 2)
    assert apart.times == ((INF, 2.0), (3.0, 4.0))


@given(models(most=4, devices=3, memory=True), st.permutations(range(3)))
def test_devices_in_another_order_cost_what_they_did(model, order):
    result = model.on_devices(order)
    for table in ("times", "send", "receive", "overheads", "memory"):
        before, after = getattr(model, table), getattr(result, table)
        assert after == tuple(before[d if len(before) > 1 else 0] for d in order) or len(
            before
        ) == 1 == len(after)


def test_one_row_for_all_stays_one_row():
    assert replace(PAIR, overheads=(1.0, 2.0)).on_devices((1, 0)).times == PAIR.times


def test_devices_are_of_one_kind_where_they_cost_the_same_in_every_table():
    model = replace(
        PAIR, times=((1.0, 2.0),) * 4, overheads=(0.0, 1.0, 0.0, 0.0), memory=(9.0, 9.0, 9.0, 8.0)
    )
    assert kinds_of(model, 4) == (0, 1, 0, 3)
    assert kinds_of(PAIR, 3) == (0, 0, 0)


def test_groups_are_added_to_those_there_are():
    assert CHAIN.with_groups([(0, 1)]).with_groups([(2, 3)]).groups == (0b11, 0b1100)


# shares


@given(models(most=8, unsupported=True), st.integers(1, 3))
def test_a_share_is_the_part_of_the_whole_time_before_the_cut(model, cut):
    cut = min(cut, len(model.names))
    times = [t if t < INF else 0.0 for t in model.times[0]]
    whole, before = sum(times), sum(times[:cut])
    (share,) = shares_of(model, [(1 << cut) - 1])
    assert share == pytest.approx(before / whole if whole else 0.0)


def test_an_op_counts_by_its_mean_over_the_devices_that_can_run_it():
    model = CostModel("m", ("a", "b"), (0, 1), ((2.0, 1.0), (4.0, INF)))
    assert shares_of(model, [1]) == (0.75,)


@given(
    st.lists(st.integers(1, 9).map(float), min_size=4, max_size=9),
    st.lists(st.floats(0, 1), min_size=1, max_size=3),
)
def test_on_a_line_each_cut_is_the_nearest_that_leaves_every_stage_an_op(times, shares):
    n = len(times)
    line = CostModel(
        "l",
        tuple(map(str, range(n))),
        tuple(1 << i - 1 if i else 0 for i in range(n)),
        (tuple(times),),
    )
    cuts = [c.bit_count() for c in decode(line, shares)]
    assert cuts == sorted(set(cuts))
    assert cuts[0] >= 1
    assert cuts[-1] < n
    if len(shares) == 1:
        ends = [sum(times[:i]) for i in range(n + 1)]
        gap = min(abs(ends[i] - shares[0] * ends[-1]) for i in range(1, n))
        assert abs(ends[cuts[0]] - shares[0] * ends[-1]) == pytest.approx(gap)


def test_shares_may_come_in_any_order():
    assert len({decode(CHAIN, shares) for shares in permutations((0.2, 0.5, 0.9))}) == 1


@pytest.mark.parametrize(
    ("shares", "cuts"),
    [([0.5, 0.5], [3, 4]), ([0.0, 0.0], [1, 2]), ([1.0, 1.0], [4, 5]), ([0.0, 1.0], [1, 5])],
)
def test_cuts_at_one_place_lie_side_by_side(shares, cuts):
    even = replace(CHAIN, times=((1.0,) * 6,))
    assert [c.bit_count() for c in decode(even, shares)] == cuts


def test_a_group_that_reads_what_stands_between_its_ops_comes_after_it():
    model = CostModel("m", ("a", "b", "c"), (0, 0, 0b10), ((1.0, 1.0, 1.0),), groups=(0b101,))
    assert decode(model, [0.2]) == (0b010,)


# orders


def is_order(predecessors, order):
    return sorted(order) == list(range(len(predecessors))) and all(
        order.index(p) < order.index(i) for i in order for p in members(predecessors[i])
    )


@given(models(most=8), st.integers(0, 99))
@settings(deadline=None)
def test_every_order_is_topological(model, seed):
    before = model.predecessors
    for order_of in (orders.by_index, orders.depth_first, orders.breadth_first, orders.backwards):
        assert is_order(before, order_of(before))
    assert is_order(before, orders.random_order(before, Random(seed)))


def test_branches_are_laid_out_one_after_the_other_side_by_side_or_late():
    fork = (0, 1, 0b10, 1, 0b1000, 0b10100)  # 0 -> 1 -> 2, 0 -> 3 -> 4, both -> 5
    assert orders.depth_first(fork) in ([0, 1, 2, 3, 4, 5], [0, 3, 4, 1, 2, 5])
    assert orders.breadth_first(fork) == [0, 1, 3, 2, 4, 5]
    late = (0, 0, 0b10, 0b101)  # 0 is read by 3 alone, 1 -> 2 -> 3
    assert orders.backwards(late) == [0, 1, 2, 3]
    assert orders.backwards((0, 0, 0b1, 0b110))[:3] == [1, 0, 2]


# questions


@given(models(most=6, memory=True, groups=True, inputs=True), st.integers(1, 3))
@settings(deadline=None, max_examples=40)
def test_a_plan_holds_no_more_than_the_memory_and_its_bound_is_no_higher_than_any_split(
    model, stages
):
    best = brute_force(model, stages)
    if not best:
        with pytest.raises(Infeasible):
            plan(model, stages)
        return
    best_plan = plan(model, stages)
    assert all(
        used <= limit for used, limit in zip(best_plan.memory, model.memory * stages, strict=False)
    )
    assert best_plan.lower_bound <= float(best[0][0])
    assert best_plan.bytes_moved == float(model_cost(model, best_plan.stages)[2])


@given(models(most=5, devices=2), st.permutations(range(2)))
@settings(deadline=None, max_examples=25)
def test_a_limit_of_memory_for_each_device_is_met_by_each(model, order):
    limits = tuple((12.0, 25.0)[d] for d in order)
    model = replace(model, memory=limits)
    best = brute_force(model, 2)
    if not best:
        with pytest.raises(Infeasible):
            plan(model, 2)
        return
    best_plan = plan(model, 2)
    assert (best_plan.period, best_plan.latency) == tuple(map(float, best[0][:2]))


@pytest.mark.parametrize("k", [0, -1])
def test_no_fewer_than_one_split_can_be_asked_for(k):
    with pytest.raises(ConfigError, match=f"k is {k};"):
        k_best(CHAIN, 2, k)


def test_more_splits_than_there_are_come_to_those_there_are():
    plans = k_best(CHAIN, 3, 99)
    assert len(plans) == 10
    assert len({p.stages for p in plans}) == 10
    assert [p.optimal for p in plans] == [p.period == plans[0].period for p in plans]
    assert {p.lower_bound for p in plans} == {plans[0].period}


def test_another_number_of_devices_than_stages_is_refused():
    model = replace(PAIR, times=((1.0, 2.0), (2.0, 1.0)))
    with pytest.raises(ConfigError, match="1 stages on 2 devices"):
        plan(model, 1)
    with pytest.raises(SplitError, match="1 stages on 2 devices"):
        evaluate(model, [(0, 1)])


def test_an_empty_stage_costs_nothing_and_must_be_allowed():
    model = replace(PAIR, overheads=(0.5,), sizes=(1.0, 2.0))
    with pytest.raises(SplitError, match="stage 0 is empty"):
        evaluate(model, [(), (0, 1)])
    cost = evaluate(model, [(), (0, 1)], allow_empty=True)
    assert (cost.loads, cost.memory, cost.cuts) == ((0.0, 3.5), (0.0, 3.0), (0,))


def test_with_time_out_at_once_the_questions_still_have_an_answer():
    late = {"deadline": lambda: True}
    best = plan(CHAIN, 3)
    assert k_best(CHAIN, 3, 5, **late)[0].stages
    assert least_latency(CHAIN, 3, best.period * 9, **late).period <= best.period * 9
    plans, complete = pareto_front(CHAIN, 3, **late)
    assert plans
    assert not complete


# baselines


@pytest.mark.parametrize(
    ("places", "size", "spread_positions"),
    [
        ([0, 0, 0], 5, [1, 2, 3]),
        ([5, 5], 5, [3, 4]),
        ([2, 2], 4, [2, 3]),
        ([1, 3], 4, [1, 3]),
        ([], 3, []),
    ],
)
def test_spread_move_apart_so_that_no_stage_is_empty(places, size, spread_positions):
    assert spread_places(places, size) == spread_positions


def test_each_device_has_the_costs_of_its_runtime() -> None:
    first = RuntimeCosts("first", ((1.0, 9.0), (2.0, 9.0)), (0.1, 0.2))
    second = RuntimeCosts("second", ((9.0, 3.0), (9.0, 4.0)), (1.0, 2.0))
    least = {"times": ((1.0, 3.0), (2.0, 4.0)), "overheads": (0.1, 0.2)}
    costs = replace(PAIR, runtimes=(first, second), **least)
    chosen = costs.in_runtimes(["second", "first"])
    assert (chosen.times, chosen.overheads) == (((9.0, 3.0), (2.0, 9.0)), (1.0, 0.2))
    assert chosen.runtimes == ()
    assert costs.in_runtimes(["unknown"] * 2).times == first.times
