import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.cuts import TooManyDownsets, closure, closures, downsets, full, is_downset, members
from tests.cuts.graphs import Order, listed, orders


@given(orders())
def test_lists_every_downset_once_the_smaller_first(order):
    cuts = downsets(order)
    assert set(cuts) == listed(order)
    assert len(cuts) == len(set(cuts))
    assert [d.bit_count() for d in cuts] == sorted(d.bit_count() for d in cuts)


@given(orders(), st.integers(0, 255))
def test_the_closure_is_the_smallest_downset_that_holds_the_ops(order, ops):
    ops &= full(order)
    assert closure(order, ops) == min((d for d in listed(order) if not ops & ~d), key=int.bit_count)
    assert closure(order, list(members(ops))) == closure(order, ops)
    single = [closure(order, [i]) for i in range(len(order.predecessors))]
    assert closures(order.predecessors) == single


@given(orders(), st.integers(0, 255))
def test_a_set_is_a_downset_if_it_holds_all_producers(order, ops):
    assert is_downset(order, ops) == (ops in listed(order))


def test_more_downsets_than_the_limit_are_refused():
    free = Order((0,) * 10)
    with pytest.raises(TooManyDownsets, match="1000"):
        downsets(free, limit=1000)
    assert len(downsets(free, limit=1024)) == 1024
