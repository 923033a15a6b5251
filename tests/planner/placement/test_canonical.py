"""Which devices a split uses where stages may stay empty, against lists of all choices."""

from __future__ import annotations

from itertools import combinations, pairwise, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosplit.cuts.stages import Stages
from autosplit.errors import Infeasible
from autosplit.planner import CostModel, evaluate
from autosplit.planner.placement import device_subsets
from autosplit.planner.placement.canonical import CanonicalPlacement, largest_stages
from autosplit.planner.problem.contention import ContentionCosts, costs_at

KINDS = st.lists(st.integers(0, 2), min_size=1, max_size=6).map(tuple)


def never() -> bool:
    return False


def sequences(kinds: tuple[int, ...], used: int) -> set[tuple[int, ...]]:
    """The different kinds, in order, that ``used`` of the devices can have."""
    return {tuple(kinds[d] for d in chosen) for chosen in combinations(range(len(kinds)), used)}


@given(KINDS, st.integers(0, 7))
def test_choices_differ_and_none_is_missing(kinds: tuple[int, ...], used: int) -> None:
    listed = list(CanonicalPlacement(kinds).device_choices(used))
    assert {tuple(kinds[d] for d in chosen) for chosen in listed} == sequences(kinds, used)
    assert len(listed) == len(sequences(kinds, used)) == CanonicalPlacement(kinds).count(used)
    assert all(a < b for chosen in listed for a, b in pairwise(chosen))


@st.composite
def seated(draw: st.DrawFn) -> tuple[CanonicalPlacement, Stages]:
    kinds = draw(KINDS)
    return CanonicalPlacement(kinds), tuple(
        (d,) if draw(st.booleans()) else () for d in range(len(kinds))
    )


@given(seated())
def test_a_split_is_written_on_the_earliest_devices_it_can_have(
    question: tuple[CanonicalPlacement, Stages],
) -> None:
    places, stages = question
    parts = [ops for ops in stages if ops]
    kinds = tuple(places.kinds[d] for d, ops in enumerate(stages) if ops)
    alike = [
        chosen
        for chosen in combinations(range(len(stages)), len(parts))
        if tuple(places.kinds[d] for d in chosen) == kinds
    ]
    canonical = places.canonical(stages)
    assert canonical == places.assign(parts, min(alike))
    assert places.canonical(canonical) == canonical


@given(seated())
def test_elsewhere_one_stage_is_on_another_kind(
    question: tuple[CanonicalPlacement, Stages],
) -> None:
    places, stages = question
    parts = [ops for ops in stages if ops]
    own_kinds = [places.kinds[d] for d, ops in enumerate(stages) if ops]
    listed = list(places.on_another_kind(stages))
    assert all([ops for ops in other if ops] == parts for other in listed)
    kinds = [[places.kinds[d] for d, ops in enumerate(other) if ops] for other in listed]
    apart = [
        k
        for k in sequences(places.kinds, len(parts))
        if sum(a != b for a, b in zip(own_kinds, k, strict=True)) == 1
    ]
    assert sorted(kinds) == sorted(map(list, apart))


def test_parts_and_devices_go_together() -> None:
    assert CanonicalPlacement((0, 0, 1)).assign([(5,), (6,)], [0, 2]) == ((5,), (), (6,))


@pytest.mark.parametrize(
    ("shares", "used", "stages", "cuts"),
    [
        ([0.5, 0.9], 3, [0, 1, 2], [0.5, 0.9]),
        ([0.9, 0.5], 2, [0, 1], [0.5]),
        ([0.5, 0.6], 2, [0, 2], [0.55]),
        ([0.1, 0.5], 2, [1, 2], [0.5]),
        ([0.1, 0.5], 1, [2], []),
        ([0.5], 1, [0], []),
        ([], 1, [0], []),
    ],
)
def test_the_widest_stages_stay_and_halve_what_lies_between(
    shares: list[float], used: int, stages: list[int], cuts: list[float]
) -> None:
    largest, new_cuts = largest_stages(shares, used)
    assert largest == stages
    assert new_cuts == pytest.approx(cuts)


def model(factor: float = 1.0, rows: Any = ((1.0, 2.0, 3.0, 4.0),)) -> CostModel:
    times = tuple(tuple(t * factor for t in row) for row in rows)
    return CostModel("m", tuple("abcd"), (0, 1, 2, 4), times, overheads=(0.5,))


def test_of_a_crowd_the_costs_are_those_of_so_many_stages() -> None:
    alone, three = model(), model(3.0)
    costs = ContentionCosts(alone, three, 3)
    assert [costs.at(n) for n in (1, 2, 3)] == [alone, model(2.0), three]
    assert ContentionCosts(alone, alone).at(5) is alone
    assert costs_at(alone, 2) is alone
    assert costs_at(costs, 3) is three


def splits(places: CanonicalPlacement, most: int) -> list[Stages]:
    """All splits of four ops in a row on the devices, alike ones once."""
    listed: dict[Stages, None] = {}
    for at in product(range(len(places.kinds)), repeat=4):
        if list(at) == sorted(at) and len(set(at)) <= most:
            listed[
                places.canonical(
                    tuple(
                        tuple(i for i in range(4) if at[i] == d) for d in range(len(places.kinds))
                    )
                )
            ] = None
    return list(listed)


def crowd(slower: float, rows: Any) -> ContentionCosts:
    """Costs that are ``slower`` where all of three devices are busy."""
    return ContentionCosts(model(1.0, rows), model(slower, rows), 3)


def ranked(costs: ContentionCosts, listed: list[Stages]) -> list[tuple[float, float, Stages]]:
    plans = [(evaluate(costs.at(sum(map(bool, s))), s, allow_empty=True), s) for s in listed]
    return sorted((p.period, p.latency, s) for p, s in plans)


ROWS = [(1.0, 2.0, 3.0, 4.0), (4.0, 1.0, 2.0, 1.0), (1.0, 2.0, 3.0, 4.0)]


@pytest.mark.parametrize("slower", [1.0, 1.5, 2.5])
@pytest.mark.parametrize(("rows", "kinds"), [(ROWS[:1], (0, 0, 0)), (ROWS, (0, 1, 0))])
def test_the_best_splits_of_any_number_of_stages_are_listed(
    slower: float, rows: Any, kinds: tuple[int, ...]
) -> None:
    costs, places = (crowd(slower, rows), CanonicalPlacement(kinds))
    best = ranked(costs, splits(places, 3))[:5]
    best_splits = device_subsets.best_splits_under_contention(places, costs, 3, 5, never)
    assert [s for *_, s in ranked(costs, best_splits)] == best_splits
    assert len(set(best_splits)) == 5
    assert [p for p, *_ in ranked(costs, best_splits)] == pytest.approx([p for p, *_ in best])


@pytest.mark.parametrize("slower", [1.0, 1.5])
def test_of_very_many_choices_of_devices_each_number_of_stages_is_planned(
    slower: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        device_subsets, "CHOICES", 6
    )  # three devices of two kinds have seven choices
    costs, places = (crowd(slower, ROWS), CanonicalPlacement((0, 1, 2)))
    best_splits = device_subsets.best_splits_under_contention(places, costs, 3, 5, never)
    assert ranked(costs, best_splits)[0][0] == ranked(costs, splits(places, 3))[0][0]
    periods = [
        evaluate(costs.at(sum(map(bool, s))), s, allow_empty=True).period for s in best_splits
    ]
    assert periods == sorted(periods)
    assert len(set(best_splits)) == 5


@pytest.mark.parametrize("most", [1, 2])
def test_no_more_stages_are_used_than_asked(most: int) -> None:
    costs = ContentionCosts(model(), model())
    best_splits = device_subsets.best_splits_under_contention(
        CanonicalPlacement((0, 0, 0)), costs, most, 20, never
    )
    assert max(sum(map(bool, s)) for s in best_splits) == most
    assert {s for *_, s in ranked(costs, best_splits)} == set(
        splits(CanonicalPlacement((0, 0, 0)), most)
    )


def test_out_of_time_there_is_still_a_split() -> None:
    costs, places = crowd(1.5, ROWS[:1]), CanonicalPlacement((0, 0, 0))
    assert device_subsets.best_splits_under_contention(places, costs, 3, 5, lambda: True)


@given(st.sampled_from([((0, 0, 0), ROWS[:1]), ((0, 1, 0), ROWS)]), st.integers(1, 12))
@settings(deadline=None, max_examples=15)
def test_costs_that_hold_for_any_number_give_each_split_once(question: Any, count: int) -> None:
    kinds, rows = question
    costs, places = model(1.0, rows), CanonicalPlacement(kinds)
    best_splits = device_subsets.best_splits(places, costs, count, never)
    best = ranked(ContentionCosts(costs, costs), splits(places, 3))[:count]
    assert len(set(best_splits)) == len(best_splits) == len(best)
    assert [p for p, *_ in ranked(ContentionCosts(costs, costs), best_splits)] == pytest.approx(
        [p for p, *_ in best]
    )
    assert [places.canonical(s) for s in best_splits] == best_splits


def test_where_no_choice_of_devices_fits_it_says_of_what() -> None:
    inf = float("inf")
    costs = ContentionCosts(
        model(1.0, ((inf, 1.0, 1.0, inf), (inf, 1.0, 1.0, inf))),
        model(1.0, ((inf,) * 4, (inf,) * 4)),
        2,
    )
    with pytest.raises(Infeasible, match="'m'"):
        device_subsets.best_splits_under_contention(CanonicalPlacement((0, 1)), costs, 2, 3, never)


def test_what_only_one_device_can_run_is_planned_for_that_one() -> None:
    inf = float("inf")
    rows = ((inf, 1.0, 1.0, 1.0), (1.0, 1.0, 1.0, 1.0))
    splits = device_subsets.best_splits_under_contention(
        CanonicalPlacement((0, 1)), crowd(1.0, rows), 2, 9, never
    )
    assert splits == [((), (0, 1, 2, 3))]
