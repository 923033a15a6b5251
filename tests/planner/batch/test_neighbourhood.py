from collections.abc import Callable
from itertools import accumulate

from autosplit.cuts import bitset, downsets, is_downset
from autosplit.cuts.stages import Stages
from autosplit.hardware.bench.simulated import SimulatedBench
from autosplit.planner.batch.neighbourhood import Near
from autosplit.study.space.search_space import Space

Make = Callable[..., SimulatedBench]


def ends(stages: Stages) -> list[int]:
    return list(accumulate(map(bitset, stages[:-1]), int.__or__))


def near(space: Space) -> Near:
    return Near(space.costs, space.moves)


def test_the_cuts_of_the_splits_come_first_then_those_a_move_away(branchy_bench: Make) -> None:
    space = Space(branchy_bench(blocks=4).costs, 3)
    plan = space.plan()
    own = ends(plan)
    moved = {cut for end in own for cut in space.moves.of(end)} - set(own)
    found = near(space).cuts([plan], 200)
    assert list(found[:2]) == own
    assert set(found[2 : 2 + len(moved)]) == moved


def test_the_cuts_two_moves_away_follow(branchy_bench: Make) -> None:
    space = Space(branchy_bench(blocks=4).costs, 3)
    plan = space.plan()
    first = set(ends(plan)).union(*map(space.moves.of, ends(plan)))
    second = first.union(*map(space.moves.of, first))
    assert set(near(space).cuts([plan], 10_000)[: len(second)]) == second


def test_farther_cuts_are_the_nearest_in_time(chain_bench: Make) -> None:
    space = Space(chain_bench(ops=40).costs, 3)
    plan = space.plan()
    times = list(accumulate(space.costs.times[0]))
    own = [times[cut.bit_count() - 1] for cut in ends(plan)]
    away = {bitset(range(n)): min(abs(times[n - 1] - t) for t in own) for n in range(1, 40)}
    close = {bitset(range(cut.bit_count() + n)) for cut in ends(plan) for n in range(-2, 3)}
    found = near(space).cuts([plan], len(close) + 6)
    assert set(found[: len(close)]) == close
    assert list(found[len(close) :]) == sorted(away.keys() - close, key=away.__getitem__)[:6]


def test_all_cuts_are_legal_and_none_comes_twice(branchy_bench: Make) -> None:
    space = Space(branchy_bench(blocks=4).costs, 3)
    found = near(space).cuts([space.plan()], 60)
    assert len(set(found)) == len(found) == 60
    assert all(is_downset(space.costs, cut) for cut in found)


def test_a_chain_is_covered_from_end_to_end(chain_bench: Make) -> None:
    space = Space(chain_bench(ops=40).costs, 3)
    found = near(space).cuts([space.plan()], 1000)
    assert {*found, 0} == set(downsets(space.costs))


def test_some_places_are_left_for_the_cuts_along_the_orders(branchy_bench: Make) -> None:
    space = Space(branchy_bench(blocks=6, branches=4).costs, 2)
    found = near(space).cuts([space.plan()], 40)
    assert len(found) == 40
    assert len([cut for cut in found if cut in near(space)._chains]) > 8


def test_ops_kept_together_stay_on_one_side_of_each_cut(branchy_bench: Make) -> None:
    bench = branchy_bench(blocks=3)
    group = bitset([1, 2])
    space = Space(bench.costs.with_groups([(1, 2)]), 3)
    assert all(cut & group in (0, group) for cut in near(space).cuts([space.plan()], 100))
