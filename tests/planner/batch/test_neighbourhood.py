from itertools import accumulate

from autosplit.cuts import bitset, downsets, is_downset
from autosplit.planner import plan
from autosplit.planner.batch.neighbourhood import RADIUS, CutNeighbourhood
from tests.planner.graphs import branchy, parallel_chains

GRAPH = branchy(4, 3)
SPLIT = plan(GRAPH, 3)
CHAIN = parallel_chains(1, 40)
CHAIN_SPLIT = plan(CHAIN, 3)


def near(costs, split, most):
    return CutNeighbourhood(costs).around([split.stages], most)


def adjacent(cuts):
    return set().union(*(CutNeighbourhood(GRAPH).adjacent(cut) for cut in cuts))


def test_adjacent_cuts_are_those_with_one_op_more_or_less():
    cuts = downsets(GRAPH)
    expected = {cut for cut in cuts if (cut ^ SPLIT.cuts[0]).bit_count() == 1}
    assert adjacent(SPLIT.cuts[:1]) == expected


def test_the_cuts_of_the_splits_come_first_then_adjacent_ones():
    around = adjacent(SPLIT.cuts) - set(SPLIT.cuts)
    cuts = near(GRAPH, SPLIT, 200)
    assert cuts[:2] == SPLIT.cuts
    assert set(cuts[2 : 2 + len(around)]) == around


def test_the_cuts_two_moves_away_follow():
    first = {*SPLIT.cuts, *adjacent(SPLIT.cuts)}
    second = first | adjacent(first)
    assert set(near(GRAPH, SPLIT, 10_000)[: len(second)]) == second


def test_farther_cuts_are_the_nearest_in_time():
    times = list(accumulate(CHAIN.times[0]))
    sizes = [cut.bit_count() for cut in CHAIN_SPLIT.cuts]
    distance = {
        bitset(range(n)): min(abs(times[n - 1] - times[size - 1]) for size in sizes)
        for n in range(1, 40)
    }
    close = {bitset(range(size + n)) for size in sizes for n in range(-2, 3)}
    cuts = near(CHAIN, CHAIN_SPLIT, len(close) + 6)
    assert set(cuts[: len(close)]) == close
    assert list(cuts[len(close) :]) == sorted(distance.keys() - close, key=distance.get)[:6]


def test_all_cuts_are_legal_and_none_comes_twice():
    cuts = near(GRAPH, SPLIT, 60)
    assert len(set(cuts)) == len(cuts) == 60
    assert all(is_downset(GRAPH, cut) for cut in cuts)


def test_a_chain_is_covered_from_end_to_end():
    assert {*near(CHAIN, CHAIN_SPLIT, 1000), 0} == set(downsets(CHAIN))


def test_some_places_are_left_for_the_cuts_along_the_orders():
    graph = branchy(6, 4)
    split = plan(graph, 2)
    cuts = near(graph, split, 40)
    far = [cut for cut in cuts if (cut ^ split.cuts[0]).bit_count() > RADIUS]
    assert len(cuts) == 40
    assert far


def test_ops_kept_together_stay_on_one_side_of_each_cut():
    graph = branchy(3, 3).with_groups([(1, 2)])
    group = bitset([1, 2])
    assert all(cut & group in (0, group) for cut in near(graph, plan(graph, 3), 100))
