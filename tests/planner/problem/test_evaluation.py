import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.cuts import members
from autosplit.errors import ConfigError, Infeasible, SplitError
from autosplit.planner import Plan, decode, evaluate, evaluate_cuts, plan, shares_of
from tests.planner.graphs import parallel_chains, random_dag
from tests.planner.strategies import models

CHAIN = parallel_chains(1, 6)
SHARE = st.floats(0, 1)


@given(models(most=9, groups=True), st.lists(SHARE, max_size=4), SHARE)
def test_any_shares_decode_to_a_legal_split(model, shares, branch):
    if len(model.contraction.groups) <= len(shares):
        with pytest.raises(Infeasible):
            decode(model, shares, branch)
        return
    assert (
        evaluate_cuts(model, decode(model, shares, branch)).period >= 0
    )  # raises unless legal and no stage empty


@given(st.integers(1, 5), SHARE)
def test_a_cut_of_a_line_decodes_to_itself(cut, branch):
    assert decode(CHAIN, shares_of(CHAIN, [(1 << cut) - 1]), branch) == ((1 << cut) - 1,)


def test_branch_lays_chains_one_after_the_other_or_side_by_side():
    fork = parallel_chains(2, 8)
    after, beside = decode(fork, [0.5], 0.0), decode(fork, [0.5], 1.0)
    assert min(sum(i < 8 for i in members(after[0])), sum(i >= 8 for i in members(after[0]))) <= 2
    assert min(sum(i < 8 for i in members(beside[0])), sum(i >= 8 for i in members(beside[0]))) >= 3


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_outside_0_to_1_is_refused(share):
    with pytest.raises(ConfigError):
        decode(CHAIN, [share])
    with pytest.raises(ConfigError):
        decode(CHAIN, [0.5], share)


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ([(0, 1, 2, 3, 4, 5), ()], "stage 1 is empty"),
        ([(0, 1, 2), (3, 4)], "'op5' is in no stage"),
        ([(0, 1, 2), (2, 3, 4, 5)], "'op2' appears again in stage 1"),
        ([(0, 1, 9), (2, 3, 4, 5)], "op 9"),
        ([(1, 2, 3), (0, 4, 5)], "'op1' but not its producer 'op0'"),
    ],
)
def test_an_illegal_split_names_the_op(stages, message):
    with pytest.raises(SplitError, match=message):
        evaluate(CHAIN, stages)


def test_a_group_that_is_torn_is_named():
    with pytest.raises(SplitError, match="op1, op2"):
        evaluate(CHAIN.with_groups([(1, 2)]), [(0, 1), (2, 3, 4, 5)])


def test_cuts_that_do_not_nest_are_refused():
    with pytest.raises(SplitError, match="op1"):
        evaluate_cuts(CHAIN, [0b111, 0b1])


def test_an_empty_stage_is_refused_unless_it_may_be():
    with pytest.raises(SplitError, match="empty"):
        evaluate_cuts(CHAIN, [0b1, 0b1])
    assert len(evaluate_cuts(CHAIN, [0b1, 0b1], allow_empty=True).stages) == 3


def test_the_gap_is_relative_to_the_bound():
    best = plan(random_dag(10, 0), 2)
    assert best.gap == 0
    assert Plan((), (), (), 3.0, 0.0, 0.0, (), lower_bound=2.0).gap == 0.5
    assert Plan((), (), (), 3.0, 0.0, 0.0, ()).gap == float("inf")
