from itertools import product
from math import comb

from hypothesis import given, settings
from hypothesis import strategies as st

from autosplit.cuts import Count, count, count_maps, count_splits
from tests.cuts.graphs import Order, listed, orders

CROWN = Order(
    (0,) * 12 + tuple(0xFFF ^ 1 << i for i in range(12))
)  # each of 12 reads all but one of 12 others


def chains(number: int, length: int) -> Order:
    return Order(tuple(1 << i - 1 if i % length else 0 for i in range(number * length)))


@given(orders())
def test_the_count_of_cuts_is_that_of_a_list(order):
    assert count(order) == Count(len(listed(order)), True)


@given(orders(most=6), st.integers(1, 4))
@settings(deadline=None)
def test_the_counts_of_splits_are_those_of_a_list(order, stages):
    n = len(order.predecessors)
    edges = [(p, i) for i in range(n) for p in range(n) if order.predecessors[i] >> p & 1]
    maps = [m for m in product(range(stages), repeat=n) if all(m[a] <= m[b] for a, b in edges)]
    assert count_maps(order, stages) == Count(len(maps), True)
    assert count_splits(order, stages).total == sum(len(set(m)) == stages for m in maps)


def test_parallel_chains_are_counted_far_past_any_list():
    assert count(chains(64, 10)) == Count(11**64, True)


def test_chains_between_a_source_and_a_sink_are_counted_as_well():
    ends = sum(1 << 10 * c for c in range(1, 65))
    inner = tuple(1 << i - 1 if (i - 1) % 10 else 1 for i in range(1, 641))
    assert count(Order((0, *inner, ends))) == Count(11**64 + 2, True)


def test_one_chain_has_a_binomial_of_splits():
    assert count_splits(chains(1, 40), 8) == Count(comb(39, 7), True)


def test_past_the_limit_the_total_is_a_lower_bound():
    exact, stopped = count(CROWN), count(CROWN, limit=50)
    assert exact.complete
    assert not stopped.complete
    assert 1 < stopped.total <= exact.total


def test_a_deadline_stops_the_count():
    assert not count(CROWN, deadline=lambda: True).complete
