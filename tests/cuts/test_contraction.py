from hypothesis import given, settings
from hypothesis import strategies as st

from autosplit.cuts import contract
from tests.cuts.graphs import Order, listed, orders


def closed(order: Order, groups) -> set[int]:
    return {d for d in listed(order) if all(g & d in (0, g) for g in groups)}


@given(orders(), st.lists(st.integers(0, 255), max_size=3))
@settings(deadline=None)  # the first example loads networkx
def test_downsets_of_the_contraction_are_those_that_keep_groups_whole(order, groups):
    groups = [g & (1 << len(order.predecessors)) - 1 for g in groups]
    groups_of = contract(order.predecessors, groups)
    expanded = {groups_of.expand(d) for d in listed(Order(groups_of.predecessors))}
    assert expanded == closed(order, groups)


def test_a_cycle_between_groups_joins_all_of_it():
    chain = (0, 0b1, 0b10, 0b100, 0b1000)
    assert contract(chain, [0b101]).groups == (0b111, 0b1000, 0b10000)
    assert contract(chain, [0b1001, 0b100]).groups == (0b1111, 0b10000)
