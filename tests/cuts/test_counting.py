from hypothesis import given

from autosplit.cuts import Count, count
from tests.cuts.graphs import Order, listed, orders

CROWN = Order(
    (0,) * 12 + tuple(0xFFF ^ 1 << i for i in range(12))
)  # each of 12 reads all but one of 12 others


def chains(number: int, length: int) -> Order:
    return Order(tuple(1 << i - 1 if i % length else 0 for i in range(number * length)))


@given(orders())
def test_the_count_of_cuts_is_that_of_a_list(order):
    assert count(order) == Count(len(listed(order)), True)


def test_parallel_chains_are_counted_far_past_any_list():
    assert count(chains(64, 10)) == Count(11**64, True)


def test_chains_between_a_source_and_a_sink_are_counted_as_well():
    ends = sum(1 << 10 * c for c in range(1, 65))
    inner = tuple(1 << i - 1 if (i - 1) % 10 else 1 for i in range(1, 641))
    assert count(Order((0, *inner, ends))) == Count(11**64 + 2, True)


def test_past_the_limit_the_total_is_a_lower_bound():
    exact, stopped = count(CROWN), count(CROWN, limit=50)
    assert exact.complete
    assert not stopped.complete
    assert 1 < stopped.total <= exact.total
