"""Reductions leave a split that is as good as the best of all."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosplit.cuts import count
from autosplit.errors import Infeasible
from autosplit.planner import Constraints, CostModel, Transfer, plan
from autosplit.planner.problem.constraints import FREE
from autosplit.planner.problem.problem import pose
from autosplit.planner.problem.reductions import View, reduced, with_moves, with_order
from tests.planner.graphs import branchy, easy_to_reduce
from tests.planner.reference import brute_force
from tests.planner.strategies import with_runtimes

RULES = {
    "producers": lambda problem: with_moves(problem, View(problem).to_producers()),
    "consumers": lambda problem: with_moves(problem, View(problem).to_consumers()),
    "branches": with_order,
}


def ranks(model, stages, allow_empty=True):
    return brute_force(model, stages, allow_empty)[:1]


@pytest.mark.parametrize("rule", RULES)
@settings(deadline=None, max_examples=150)
@given(seed=st.integers(0, 10**6))
def test_a_best_split_is_left_by_each_rule(rule, seed):
    model, stages = easy_to_reduce(seed)
    smaller = RULES[rule](pose(model, stages, FREE, allow_empty=True))
    assert [r[:3] for r in ranks(smaller, stages)] == [r[:3] for r in ranks(model, stages)]


@settings(deadline=None, max_examples=150)
@given(seed=st.integers(0, 10**6), allow_empty=st.booleans(), data=st.data())
def test_the_plan_of_a_reduced_problem_is_the_best_of_all(seed, allow_empty, data):
    model, stages = easy_to_reduce(seed)
    if data.draw(st.booleans()):
        model = data.draw(with_runtimes(model, model.devices or 1))
    best = ranks(model, stages, allow_empty)
    try:
        result = plan(model, stages, allow_empty=allow_empty)
    except Infeasible:
        assert not best
        return
    assert (result.period, result.latency, result.bytes_moved) == tuple(map(float, best[0][:3]))
    assert result.optimal


def chain_of(*times, tensors=()):
    """Ops in a row, of which each reads the one before it and what else ``tensors`` say."""
    n = len(times)
    links = [Transfer(f"t{i}", i, (i + 1,), 8.0) for i in range(n - 1)] + list(tensors)
    predecessors = [0] * n
    for tensor in links:
        for reader in tensor.consumers:
            predecessors[reader] |= 1 << tensor.producer
    costs = (tuple(1.0 for _ in links),)
    names = tuple(f"op{i}" for i in range(n))
    return CostModel("c", names, tuple(predecessors), (times,), tuple(links), costs, costs)


def groups_left(model, stages=2, constraints=FREE):
    problem = pose(model, stages, constraints)
    smaller = reduced(problem)
    return None if smaller is None else smaller.contraction.groups


def test_an_op_without_time_follows_a_neighbour() -> None:
    assert groups_left(chain_of(1.0, 0.0, 2.0)) == (0b011, 0b100)
    assert groups_left(chain_of(1.0, 3.0, 2.0)) is None
    # Its place decides which of two tensors crosses a cut.
    heavy = replace(chain_of(1.0, 0.0, 2.0), send=((1.0, 5.0),), receive=((1.0, 5.0),))
    assert groups_left(heavy) == (0b001, 0b110)


def graph_of(times, *tensors):
    """Ops and tensors of (producer, consumer, cost of a transfer)."""
    n = len(times)
    predecessors = [0] * n
    for producer, reader, _ in tensors:
        predecessors[reader] |= 1 << producer
    links = tuple(Transfer(f"t{t}", a, (b,)) for t, (a, b, _) in enumerate(tensors))
    costs = (tuple(cost for *_, cost in tensors),)
    names = tuple(f"op{i}" for i in range(n))
    return CostModel("g", names, tuple(predecessors), (times,), links, costs, costs)


def test_an_op_stays_where_a_move_may_cost_more_or_be_illegal() -> None:
    # It reads from before its producer, too.
    reads_more = graph_of((1.0, 3.0, 0.0, 2.0), (0, 1, 1.0), (1, 2, 1.0), (2, 3, 1.0), (0, 2, 1.0))
    assert groups_left(reads_more) is None
    # Another producer may lie later, another consumer earlier.
    assert (
        groups_left(graph_of((1.0, 3.0, 0.0, 2.0), (0, 2, 2.0), (1, 2, 0.0), (2, 3, 1.0))) is None
    )
    assert groups_left(graph_of((0.0, 1.0, 3.0), (0, 1, 1.0), (0, 2, 0.0))) is None


def test_limited_memory_and_constraints_are_kept() -> None:
    model = chain_of(1.0, 0.0, 2.0)
    full = replace(model, sizes=(1.0, 1.0, 1.0), memory=(2.0,))
    assert groups_left(full) is None
    assert groups_left(replace(full, memory=(3.0,))) is not None
    assert groups_left(model, constraints=Constraints(stages={"op1": 1})) is None
    assert groups_left(model, constraints=Constraints(require=["t0"])) is None
    assert groups_left(model, constraints=Constraints(live_tensors=1)) is None


def test_a_stage_of_an_op_without_time_is_not_lost() -> None:
    best = plan(chain_of(1.0, 0.0, 2.0), 3)
    assert best.stages == ((0,), (1,), (2,))
    assert best.optimal


def test_equal_branches_are_in_order() -> None:
    model = branchy(1, 6, transfer=0.0)
    tensors = tuple(replace(tensor, bytes=8.0) for tensor in model.tensors)
    model = replace(model, times=((1.0, *(2.0, 3.0) * 6, 1.0),), tensors=tensors)
    problem = pose(model, 3, FREE)
    smaller = reduced(problem)
    assert smaller is not None
    assert count(problem.contraction).total == 3**6 + 2
    assert count(smaller.contraction).total < 200
    assert plan(model, 3).period == 11.0
