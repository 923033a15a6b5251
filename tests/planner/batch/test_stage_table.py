import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from autosplit.cuts import downsets
from autosplit.planner import CostModel, Transfer, evaluate, evaluate_cuts, k_best
from autosplit.planner.batch import stage_table
from autosplit.planner.batch.stage_table import StageTable, all_stages, stages_between
from tests.planner.graphs import branchy, parallel_chains


def table_of(costs: CostModel, stages: int) -> StageTable:
    table = all_stages(costs, stages)
    assert table is not None
    return table


def drawn(costs: CostModel, seed: int, devices: int = 1) -> CostModel:
    """Other times and overheads, everything else as it was."""
    rng = np.random.default_rng(seed)
    rows = tuple(
        tuple((np.array(costs.times[0]) * rng.lognormal(0, 0.4, len(costs.names))).tolist())
        for _ in range(devices)
    )
    return replace(costs, times=rows, overheads=tuple(rng.random(devices).tolist()))


@pytest.mark.parametrize("devices", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_the_best_splits_are_those_the_planner_lists(seed: int, devices: int) -> None:
    known = branchy(3, 3, seed=seed)
    transfers = tuple(np.random.default_rng(seed).random(len(known.tensors)).tolist())
    known = replace(known, send=(transfers,), receive=(transfers,))
    costs = drawn(known, seed, devices)
    results = [evaluate(costs, stages) for stages in table_of(known, 3).best(costs, 25)]
    listed = k_best(costs, 3, 25)
    assert [(p.period, p.latency) for p in results] == [
        pytest.approx((p.period, p.latency)) for p in listed
    ]
    assert len({p.stages for p in results}) == 25


def test_four_unlike_devices_have_each_its_own_times() -> None:
    known = parallel_chains(1, 8)
    costs = drawn(known, 0, 4)
    periods = [evaluate(costs, stages).period for stages in table_of(known, 4).best(costs, 35)]
    assert periods == pytest.approx([p.period for p in k_best(costs, 4, 35)])


def test_all_splits_are_listed_where_more_are_asked_for() -> None:
    costs = parallel_chains(1, 7)
    assert len(table_of(costs, 3).best(costs, 100)) == 15
    assert len(table_of(costs, 3).best(replace(costs, overheads=(99.0,)), 100)) == 15


def test_no_fewer_are_listed_than_asked_for() -> None:
    costs = CostModel("c", tuple("abcd"), (0, 1, 2, 4), ((1.0, 1.0, 9.0, 1.0),))
    assert [len(table_of(costs, 3).best(costs, count)) for count in (1, 2, 3)] == [1, 2, 3]


@pytest.mark.parametrize("devices", [1, 3])
def test_the_best_split_is_found_for_many_costs_at_once(devices: int) -> None:
    known = branchy(3, 3)
    transfers = tuple(np.random.default_rng(0).random(len(known.tensors)).tolist())
    known = replace(known, send=(transfers,), receive=(transfers,))
    draws = [drawn(known, seed, devices) for seed in range(6)]
    best = [k_best(costs, 3, 1)[0].period for costs in draws]
    splits = table_of(known, 3).best_of_each(
        draws, [math.inf, *(1.3 * period for period in best[1:5]), best[5]]
    )
    assert [
        evaluate(c, s).period for c, s in zip(draws, splits, strict=True) if s
    ] == pytest.approx(best[:5])
    assert splits[5] is None


def test_of_splits_of_equal_period_the_most_even_is_found() -> None:
    costs = CostModel("c", tuple("abcde"), (0, 1, 2, 4, 8), ((9.0, 1.0, 1.0, 1.0, 1.0),))
    assert table_of(costs, 3).best_of_each([costs], [math.inf]) == [((0,), (1, 2), (3, 4))]


def test_where_one_op_takes_longest_no_better_split_is_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    costs = CostModel("c", tuple("abcd"), (0, 1, 2, 4), ((1.0, 9.0, 1.0, 1.0),))
    table = table_of(costs, 3)
    assert table.best_of_each([costs], [9.1]) == [((0,), (1,), (2, 3))]
    assert table.best_of_each([replace(costs, overheads=(2.0,))], [11.1]) == [((0,), (1,), (2, 3))]
    monkeypatch.setattr(stage_table, "stage_times", None)
    assert table.best_of_each([costs], [9.0]) == [None]


def test_an_op_that_takes_long_on_one_device_goes_to_another() -> None:
    costs = CostModel(
        "c", tuple("abcd"), (0, 1, 2, 4), ((1.0, 9.0, 1.0, 1.0), (1.0, 1.0, 1.0, 1.0))
    )
    assert table_of(costs, 2).best_of_each([costs], [5.0]) == [((0,), (1, 2, 3))]


def test_what_a_device_cannot_run_or_hold_is_not_listed() -> None:
    inf = float("inf")
    transfers = (Transfer("t", 0, (1,), 8.0),)
    costs = CostModel(
        "c", ("a", "b", "c"), (0, 1, 2), ((1.0, 1.0, 1.0), (inf, 1.0, 1.0)), transfers
    )
    assert len(table_of(costs, 2).best(costs, 9)) == 2
    heavy = replace(costs, times=((1.0, 1.0, 1.0),), sizes=(1.0, 1.0, 1.0), memory=(2.0, 1.0))
    assert table_of(heavy, 2).best(heavy, 9) == [((0, 1), (2,))]
    assert table_of(heavy, 2).best_of_each([heavy], [inf]) == [((0, 1), (2,))]


def test_ops_that_cost_nothing_are_split_by_what_moves() -> None:
    transfers = (Transfer("t", 0, (1,), 8.0), Transfer("u", 1, (2,), 8.0))
    costs = CostModel("c", ("a", "b", "c"), (0, 1, 2), ((0.0, 0.0, 0.0),), transfers, ((3.0, 1.0),))
    assert table_of(costs, 2).best(costs, 9) == [((0, 1), (2,)), ((0,), (1, 2))]


def test_an_op_that_no_device_can_run_leaves_nothing() -> None:
    costs = CostModel("c", ("a", "b"), (0, 1), ((1.0, float("inf")),))
    assert table_of(costs, 2).best(costs, 9) == []
    assert table_of(costs, 2).best_of_each([costs], [math.inf]) == [None]


def test_too_many_cuts_make_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_table, "ENTRIES", 100)
    assert all_stages(branchy(3, 3), 3) is None


@pytest.mark.parametrize("devices", [1, 3])
def test_the_table_of_some_cuts_holds_the_stages_between_them(devices: int) -> None:
    known = branchy(3, 2)
    known = replace(
        known.with_groups([(1, 2)]), send=(tuple(float(n) for n in range(len(known.tensors))),)
    )
    known = drawn(known, 0, devices)
    whole = table_of(known, 3)
    some = whole.cuts[1:-1:3]
    part = stages_between(known, 3, some)
    assert part.cuts == (whole.cuts[0], *some, whole.cuts[-1])
    places = [whole.cuts.index(cut) for cut in part.cuts]
    for all_costs, costs_between in zip(whole.transfers[0], part.transfers[0], strict=True):
        assert costs_between == pytest.approx(all_costs[np.ix_(places, places)])


def test_the_table_of_some_cuts_lists_their_splits_only() -> None:
    costs = parallel_chains(1, 8)
    splits = stages_between(costs, 3, [0b111, 0b11111, 0b111111]).best(costs, 9)
    assert {(len(a), len(b)) for a, b, _ in splits} == {(3, 2), (3, 3), (5, 1)}


@pytest.mark.parametrize("allow_empty", [False, True])
@pytest.mark.parametrize("devices", [1, 3])
@pytest.mark.parametrize("seed", range(3))
def test_each_cut_has_the_period_of_the_best_split_with_it(
    seed: int, devices: int, allow_empty: bool
) -> None:
    known = branchy(3, 2, seed=seed)
    transfers = tuple(np.random.default_rng(seed).random(len(known.tensors)).tolist())
    costs = drawn(replace(known, send=(transfers,), receive=(transfers,)), seed, devices)
    legal = downsets(costs)
    expected = dict.fromkeys(legal[1:-1], math.inf)
    for pair in itertools.combinations_with_replacement(legal, 2):
        if not pair[0] & ~pair[1] and (allow_empty or len({0, *pair, legal[-1]}) == 4):
            period = evaluate_cuts(costs, pair, allow_empty=allow_empty).period
            for cut in expected.keys() & set(pair):
                expected[cut] = min(expected[cut], period)
    assert table_of(costs, 3).cut_periods(costs, allow_empty) == pytest.approx(expected)
