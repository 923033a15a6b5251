from hypothesis import given
from hypothesis import strategies as st

from autosplit.cuts import contract, members
from tests.cuts.graphs import Order, listed, orders


def closed(order: Order, groups) -> set[int]:
    return {d for d in listed(order) if all(g & d in (0, g) for g in groups)}


@given(orders(), st.lists(st.integers(0, 255), max_size=3))
def test_downsets_of_the_contraction_are_those_that_keep_groups_whole(order, groups):
    groups = [g & (1 << len(order.predecessors)) - 1 for g in groups]
    found = contract(order.predecessors, groups)
    assert {found.expand(d) for d in listed(Order(found.predecessors))} == closed(order, groups)


def test_a_cycle_between_groups_joins_all_of_it():
    chain = (0, 0b1, 0b10, 0b100, 0b1000)
    assert contract(chain, [0b101]).groups == (0b111, 0b1000, 0b10000)
    assert contract(chain, [0b1001, 0b100]).groups == (0b1111, 0b10000)


def test_without_groups_each_op_is_alone_in_its_order():
    found = contract((0, 0b1, 0b1))
    assert found.groups == (0b1, 0b10, 0b100)
    assert found.group_of() == (0, 1, 2)
    assert list(members(found.expand(0b101))) == [0, 2]


def test_overlapping_groups_are_one():
    assert contract((0, 0, 0, 0), [0b11, 0b110]).groups == (0b111, 0b1000)
