from dataclasses import dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from autosplit import cuts
from autosplit.cuts import Count, closure, contract, count, downsets, full
from autosplit.errors import SplitError
from autosplit.graph import build
from tests.hardware.fakes import graph


def diamond(outputs=("d",)):
    """x -> a -> (b, c) -> d; a's tensor is read twice."""
    ops = [("a", ["x"]), ("b", ["a"]), ("c", ["a", "x"]), ("d", ["b", "c"])]
    return graph(ops, ["x"], outputs)


@dataclass(frozen=True)
class Order:
    predecessors: tuple[int, ...]


@st.composite
def orders(draw, most=8):
    n = draw(st.integers(0, most))
    subsets = [st.integers(0, (1 << i) - 1) for i in range(n)]
    return Order(tuple(draw(subset) & draw(subset) for subset in subsets))


def listed(order):
    """All downsets by trying every set of ops."""
    n = len(order.predecessors)
    below = order.predecessors
    return {s for s in range(1 << n) if all(not below[i] & ~s for i in range(n) if s >> i & 1)}


def closed(order, groups):
    return {d for d in listed(order) if all(g & d in (0, g) for g in groups)}


@given(orders(), st.lists(st.integers(0, 255), max_size=3))
def test_downsets_of_the_contraction_are_those_that_keep_groups_whole(order, groups):
    groups = [group & full(order) for group in groups]
    groups_of = contract(order.predecessors, groups)
    expanded = {groups_of.expand(d) for d in listed(Order(groups_of.predecessors))}
    assert expanded == closed(order, groups)


# Each of 12 reads all but one of 12 others.
CROWN = Order((0,) * 12 + tuple(0xFFF ^ 1 << i for i in range(12)))


def test_chains_between_a_source_and_a_sink_are_counted_as_well():
    ends = sum(1 << 10 * c for c in range(1, 65))
    inner = tuple(1 << i - 1 if (i - 1) % 10 else 1 for i in range(1, 641))
    assert count(Order((0, *inner, ends))) == Count(11**64 + 2, True)


def test_past_the_limit_the_total_is_a_lower_bound():
    exact, stopped = count(CROWN), count(CROWN, limit=50)
    assert exact.complete
    assert not stopped.complete
    assert 1 < stopped.total <= exact.total


@given(orders())
def test_every_downset_is_counted_and_listed_once_the_smaller_first(order):
    cuts = downsets(order)
    assert set(cuts) == listed(order)
    assert count(order) == Count(len(cuts), True) == Count(len(set(cuts)), True)
    assert [d.bit_count() for d in cuts] == sorted(d.bit_count() for d in cuts)


@given(orders(), st.integers(0, 255))
def test_the_closure_is_the_smallest_downset_that_holds_the_ops(order, ops):
    assert cuts.is_downset(order, ops) == (ops in listed(order))
    ops &= full(order)
    assert closure(order, ops) == min((d for d in listed(order) if not ops & ~d), key=int.bit_count)
    assert closure(order, list(cuts.members(ops))) == closure(order, ops)
    single = [closure(order, [i]) for i in range(len(order.predecessors))]
    assert cuts.closures(order.predecessors) == single


def test_more_downsets_than_the_limit_are_refused():
    free = Order((0,) * 10)
    with pytest.raises(cuts.TooManyDownsets, match="1000"):
        downsets(free, limit=1000)
    assert len(downsets(free, limit=1024)) == 1024


FORK = Order((0, 0b1, 0b1, 0b110))


@example(FORK, 0b111, [0b1001])  # an op goes with its producer
@given(orders(), st.integers(0, 255), st.lists(st.integers(0, 255), max_size=3))
def test_groups_are_whole_in_the_nearest_downsets(order, ops, groups):
    groups = [group & full(order) for group in groups]
    cut, whole = closure(order, ops & full(order)), closed(order, groups)
    larger = min((d for d in whole if not cut & ~d), key=int.bit_count)
    smaller = max((d for d in whole if not d & ~cut), key=int.bit_count)
    assert cuts.with_whole_groups(order, cut, groups) == larger
    assert cuts.without_torn_groups(order, cut, groups) == smaller


def test_the_last_ops_are_those_that_nothing_inside_reads():
    assert cuts.last_ops(FORK, 0b111) == 0b110
    assert cuts.last_ops(FORK, 0b1111) == 0b1000


def test_stages_lie_between_the_cuts():
    assert cuts.stages(diamond(), [0b1, 0b11]) == ((0,), (1,), (2, 3))
    assert cuts.stages(diamond(), []) == ((0, 1, 2, 3),)


@given(st.sampled_from([(0b1,), (0b11,), (0b1, 0b101), (0b1, 0b11, 0b111), ()]))
def test_cuts_of_is_the_inverse_of_stages(nested):
    assert cuts.cuts_of(diamond(), cuts.stages(diamond(), nested)) == nested


@pytest.mark.parametrize(
    ("nested", "message"),
    [([0b10], "'op_b' but not its producer 'op_a'"), ([0b1, 0b1], "stage 1 is empty"),
     ([0b11, 0b101], "'op_b' lies before cut 1 but after cut 2"), ([0], "stage 0 is empty"),
     ([0b1111], "stage 1 is empty"), ([1 << 9], "op 9"), ([-1], "cut 1")],
)  # fmt: skip
def test_an_illegal_chain_of_cuts_names_the_op(nested, message):
    with pytest.raises(SplitError, match=message):
        cuts.stages(diamond(), nested)


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ([(0, 1), (2,)], "'op_d' is in no stage"),
        ([(0, 1), (1, 2, 3)], "'op_b' appears again in stage 1"),
        ([(0, 3), (1, 2)], "'op_d' but not its producer 'op_b'"),
        ([(0, 1, 2, 3), ()], "stage 1 is empty"),
        ([(0, 1, 2, 7)], "names op 7"),
    ],
)
def test_illegal_stages_name_the_op(stages, message):
    with pytest.raises(SplitError, match=message):
        cuts.cuts_of(diamond(), stages)


def test_a_graph_without_ops_has_nothing_to_split():
    copy = build("copy", (), {"x": ((4,), "float32", 16)}, ("x",), ("x",))
    with pytest.raises(SplitError, match="model 'copy' has no op: its outputs are its inputs"):
        cuts.stages(copy, [])


def test_live_tensors_are_made_before_and_read_after():
    live = [cuts.live(diamond(), cut) for cut in (0, 0b1, 0b11, 0b111, 0b1111)]
    assert live == [(), ("a",), ("a", "b"), ("b", "c"), ()]
    # An output of the model too only while an op reads it.
    live = [cuts.live(diamond(outputs=("d", "a")), cut) for cut in (0b1, 0b111)]
    assert live == [("a",), ("b", "c")]
