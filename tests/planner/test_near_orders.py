import math

import pytest

from autosplit.cuts import count
from autosplit.planner import Question, evaluate, front, k_best, partition
from autosplit.planner.cut_set import all_cuts, to_int
from studies.benchmarks.planner import cells
from tests.planner.graphs import Clock, costed, decoder, parallel_chains


def plan(model, stages, **options):
    return partition(model, Question.of_split(stages), **options)


WIDE = [(cells(20), 8), (parallel_chains(24, 8), 8), (parallel_chains(16, 6), 4), (decoder(4), 2)]
CASES = [pytest.param(*case, marks=pytest.mark.integration) for case in WIDE]
CASES += [pytest.param(parallel_chains(64, 10), 8, marks=pytest.mark.slow)]


@pytest.mark.parametrize(("model", "stages"), CASES)
def test_graphs_too_wide_to_list_end_near_a_proven_bound(model, stages):
    assert count(model).total > 10_000_000
    best = plan(model, stages)
    assert best.gap <= 0.05
    assert best.lower_bound <= best.period == evaluate(model, best.stages).period
    assert "legal cuts" in best.note


@pytest.mark.integration
def test_wide_graphs_have_next_best_splits_and_a_front_that_say_they_may_miss_some():
    model = parallel_chains(12, 4)
    halves = Question.of_split(2)
    plans = k_best(model, halves, 3)
    assert len({p.stages for p in plans}) == 3
    assert [p.period for p in plans] == sorted(p.period for p in plans)
    assert "legal cuts" in plans[0].note
    firsts = [plans[0].period, front(model, halves)[0][0].period]
    assert firsts == pytest.approx([plan(model, 2).period] * 2)
    assert not front(model, halves)[1]
    assert not partition(model, halves, max_period=math.inf).optimal
    assert plan(model, 3) == plan(model, 3)


def test_all_cuts_of_a_graph_of_many_ops_are_listed_each_once():
    model = costed(81, [(n, n + 1) for n in range(78) if n != 39] + [(39, 80), (78, 80)])
    rows = all_cuts(model.predecessors, 10**6)
    assert len({to_int(row) for row in rows}) == len(rows) == 41 * 40 * 2 + 2


@pytest.mark.parametrize("most", [0, 3, 30])
def test_a_plan_ends_soon_after_its_deadline(most):
    clock = Clock(most)
    model = parallel_chains(4, 60)
    best = plan(model, 3, deadline=clock)
    assert clock.asked <= most + 12
    assert 0 < best.lower_bound <= best.period == evaluate(model, best.stages).period
    assert "time was up" in best.note or "legal cuts" in best.note
