import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autosplit.cuts import bitset, count, members
from autosplit.planner import (
    CostModel,
    Transfer,
    evaluate,
    k_best,
    least_latency,
    pareto_front,
    plan,
    solve,
)
from autosplit.planner.exact.downset_table import list_rows, to_bits, to_int
from autosplit.planner.exact.search import SearchResult
from autosplit.planner.large.anytime import improve
from autosplit.planner.large.cut_bound import cut_bound
from autosplit.planner.large.min_cut import FlowNetwork
from autosplit.planner.large.narrow import narrow_rows
from autosplit.planner.large.parallel_bound import parallel_blocks, parallel_bound
from autosplit.planner.problem.constraints import FREE
from autosplit.planner.problem.problem import pose, work_bound
from tests.planner.graphs import cells, costed, parallel_chains, random_dag
from tests.planner.reference import brute_force, model_cost
from tests.planner.strategies import experts, models, questions


@pytest.mark.integration
@pytest.mark.parametrize("stages", [4, 8])
@pytest.mark.parametrize("model", [cells(20), parallel_chains(64, 10)], ids=["cells", "chains"])
def test_graphs_too_wide_to_list_end_near_a_proven_bound(model, stages):
    assert count(model).total > 10_000_000
    best = plan(model, stages)
    assert best.gap <= 0.05
    assert (
        best.lower_bound <= best.period == pytest.approx(float(model_cost(model, best.stages)[0]))
    )
    assert "legal cuts" in best.note


@given(
    st.one_of(
        models(),
        models(inputs=True),
        models(devices=2, unsupported=True),
        models(most=6, devices=3),
    ),
    st.integers(2, 3),
    st.booleans(),
)
@settings(deadline=None, max_examples=80)
def test_the_bounds_never_exceed_the_optimum(model, stages, allow_empty):
    stages = model.devices or stages
    splits = brute_force(model, stages, allow_empty)
    if not splits:
        return
    best = float(splits[0][0])
    problem = pose(model, stages, FREE, allow_empty=allow_empty)
    low = work_bound(problem)
    assert low <= best * (1 + 1e-12)
    assert cut_bound(problem, low, 1.5 * best)[0] <= best * (1 + 1e-9)


@given(experts(), st.integers(2, 3), st.booleans())
@settings(deadline=None, max_examples=60)
def test_the_bound_of_parallel_ops_never_exceeds_the_optimum(model, stages, allow_empty):
    stages = model.devices or stages
    problem = pose(model, stages, FREE, allow_empty=allow_empty)
    best = float(brute_force(model, stages, allow_empty)[0][0])
    assert parallel_blocks(problem)
    assert parallel_bound(problem, 0.0, 1.5 * best, most_pieces=60) <= best * (1 + 1e-9)


def test_the_bound_of_parallel_ops_counts_the_transfers_of_each():
    edges = [(0, n) for n in range(1, 21)] + [(n, 21) for n in range(1, 21)]
    problem = pose(costed(22, edges, transfer=0.2), 4, FREE)
    low = work_bound(problem)
    assert parallel_bound(problem, low, 2 * low, most_pieces=400) > 1.1 * low


@pytest.mark.parametrize("speeds", [(1, 1, 1, 1), (1, 0.5, 0.25, 0.5), (0.25, 1, 1, 0.5)])
def test_the_flow_bound_counts_transfers_between_devices_of_any_speed(speeds):
    model = cells(8, transfer=0.5)
    times = tuple(tuple(t / speed for t in model.times[0]) for speed in speeds)
    problem = pose(replace(model, times=times), 4, FREE)
    low = work_bound(problem)
    assert low == pytest.approx(sum(model.times[0]) / sum(speeds))
    assert cut_bound(problem, low, 1.2 * low)[0] > 1.005 * low


@pytest.mark.parametrize(("ops", "transfer"), [(12, 0.3), (20, 0.5)])
def test_the_flow_bound_never_exceeds_the_optimum_of_a_random_graph(ops, transfer):
    for seed in range(12):
        model = random_dag(ops, seed, transfer=transfer)
        best, problem = plan(model, 2).period, pose(model, 2, FREE)
        assert cut_bound(problem, work_bound(problem), 1.2 * best)[0] <= best


@given(questions())
@settings(deadline=None, max_examples=40)
def test_a_quick_search_before_all_cuts_leaves_the_best_split(question):
    model, stages, allow_empty = question
    best = brute_force(model, stages, allow_empty)
    if not best:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solve, "LARGE_TABLE", 0)
        result = plan(model, stages, allow_empty=allow_empty)
    assert (result.period, result.latency, result.bytes_moved) == tuple(map(float, best[0][:3]))
    assert result.optimal


def test_the_flow_bound_counts_transfers():
    problem = pose(cells(8, transfer=1.0), 4, FREE)
    low = work_bound(problem)
    assert cut_bound(problem, low, 1.2 * low)[0] > 1.04 * low


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 9)), max_size=12))
@example(
    [(0, 1, 1), (1, 4, 1), (4, 5, 1), (0, 2, 1), (2, 4, 1), (1, 3, 1), (3, 5, 1)]
)  # what went from 1 to 4 must yield
def test_a_minimum_cut_is_the_least_of_all_cuts(arcs):
    network = FlowNetwork(6)
    for tail, head, capacity in arcs:
        network.add(tail, head, float(capacity))
    value, side = network.minimum_cut(0, 5)

    def capacity(inside):
        return sum(c for a, b, c in arcs if inside >> a & 1 and not inside >> b & 1)

    assert value == min(capacity(s) for s in range(64) if s & 1 and not s >> 5 & 1)
    assert value == capacity(bitset(i for i in range(6) if side[i]))


@pytest.mark.integration
def test_wide_graphs_have_next_best_splits_and_a_front_that_say_they_may_miss_some():
    model = parallel_chains(20, 5)
    plans = k_best(model, 2, 3)
    assert len({p.stages for p in plans}) == 3
    assert [p.period for p in plans] == sorted(p.period for p in plans)
    assert "legal cuts" in plans[0].note
    assert not pareto_front(model, 2).complete
    assert not least_latency(model, 2, math.inf).optimal


@pytest.mark.integration
def test_the_same_question_has_the_same_answer():
    assert plan(parallel_chains(20, 5), 3) == plan(parallel_chains(20, 5), 3)


def test_a_passed_deadline_still_leaves_a_legal_split():
    model = parallel_chains(64, 10)
    best = plan(model, 4, deadline=lambda: True)
    assert evaluate(model, best.stages).period == best.period
    assert 0 < best.lower_bound <= best.period
    assert sum(len(list(members(bitset(ops)))) for ops in best.stages) == 640


def test_a_gap_however_small_is_no_proof():
    model = random_dag(8, 1)
    best, problem = plan(model, 3), pose(model, 3, FREE)
    for share, proven in ((0.99995, False), (1.0, True)):
        assert (
            improve(
                problem, SearchResult(best, 0.0, False), share * best.period, (), None, rounds=1
            ).proven
            == proven
        )


def test_all_cuts_of_a_graph_of_many_ops_are_listed_each_once():
    model = costed(81, [(n, n + 1) for n in range(78) if n != 39] + [(39, 80), (78, 80)])
    rows = list_rows(model.predecessors, 10**6)
    assert len({to_int(row) for row in rows}) == len(rows) == 41 * 40 * 2 + 2


def test_a_random_graph_is_never_below_its_bound():
    for seed in range(5):
        best = plan(random_dag(30, seed, transfer=0.5), 3)
        assert best.lower_bound <= best.period


@given(
    st.one_of(models(most=6, groups=True), models(most=6, devices=2)),
    st.integers(2, 3),
    st.floats(1, 1.3),
    st.booleans(),
)
@settings(deadline=None, max_examples=60)
def test_the_narrow_table_holds_every_cut_of_every_split_within_the_period(
    model, stages, factor, allow_empty
):
    stages = model.devices or stages
    if len(model.contraction.groups) < stages and not allow_empty:
        return
    limit = plan(model, stages, allow_empty=allow_empty).period * factor
    problem = pose(model, stages, FREE, allow_empty=allow_empty)
    rows = narrow_rows(problem, limit, 10**6, None)
    table_cuts = {problem.contraction.expand(to_int(row)) for row in rows}
    for period, _, _, split in brute_force(model, stages, allow_empty):
        if period <= limit:
            assert set(evaluate(model, split, allow_empty=allow_empty).cuts) <= table_cuts


def test_the_narrow_table_of_many_ops_holds_all_cuts_that_leave_each_side_the_period():
    problem = pose(parallel_chains(2, 40, transfer=0.0), 2, FREE)
    period = 0.51 * problem.times.sum()
    rows = list_rows(problem.contraction.predecessors, 10**6)
    time = to_bits(rows, problem.size) @ problem.times[0]
    balanced = {
        to_int(row)
        for row in rows[np.abs(time - problem.times.sum() / 2) <= 0.01 * problem.times.sum()]
    }
    assert {to_int(row) for row in narrow_rows(problem, period, 10**6, None)} == balanced | {
        0,
        (1 << 80) - 1,
    }


def test_a_long_graph_too_wide_to_list_is_still_proven():
    best = plan(cells(20), 2)
    assert best.optimal
    assert best.note.endswith("could have")


def test_the_flow_bound_counts_a_tensor_that_crosses_two_cuts_once():
    tensor = Transfer("t", 0, (1, 2), 1.0)
    model = CostModel(
        "m", ("a", "b", "c"), (0, 1, 3), ((1.0, 1.0, 1.0),), (tensor,), ((1.0,),), ((1.0,),)
    )
    assert plan(model, 3).period == 2
    assert cut_bound(pose(model, 3, FREE), 1.0, 4.0)[0] <= 2
