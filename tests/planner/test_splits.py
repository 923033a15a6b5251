import json
import math
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosplit.cuts import downsets
from autosplit.errors import ConfigError, Infeasible
from autosplit.planner import (
    CostModel,
    Transfer,
    evaluate,
    evaluate_cuts,
    from_workload,
    k_best,
    pareto_front,
    plan,
)
from tests.planner.graphs import branchy, half_without_time, parallel_chains
from tests.planner.reference import brute_force, file_loads, model_cost
from tests.planner.strategies import models, questions, with_runtimes

WORKLOADS = Path(__file__).parents[2] / ".." / "shared" / "workloads"
OPTIMA = {
    ("layer_bert24", 2): 47.478953125,
    ("layer_bert24", 3): 32.24290625,
    ("layer_bert24", 4): 24.91690625,
    ("layer_bert24", 6): 17.78990625,
    ("layer_resnet50", 2): 101.28140625,
    ("layer_resnet50", 3): 67.6942578125,
    ("layer_resnet50", 4): 50.9898515625,
    ("layer_resnet50", 6): 34.2228515625,
    ("layer_inceptionv3", 2): 155.664996154785,
    ("layer_inceptionv3", 3): 103.818712585449,
    ("layer_inceptionv3", 4): 78.352723327637,
    ("layer_inceptionv3", 6): 52.201631652832,
    ("operator_bert_l-3", 2): 33.989101556140,
    ("operator_bert_l-3", 3): 27.9185676799125,
}


def workload(name):
    file = WORKLOADS / f"{name}.json"
    if not file.exists():
        pytest.skip(f"the public workloads are not at {WORKLOADS}")
    return json.loads(file.read_text())


@pytest.mark.parametrize(("name", "stages"), OPTIMA)
def test_the_published_optima_are_met(name, stages):
    document = workload(name)
    costs = from_workload(document)
    best = plan(costs, stages)
    loads, sizes = file_loads(document, [[costs.ids[i] for i in ops] for ops in best.stages])
    assert best.optimal
    assert best.period == pytest.approx(OPTIMA[name, stages], rel=1e-9)
    assert loads == pytest.approx(best.loads, rel=1e-12)
    assert max(loads) == pytest.approx(best.lower_bound, rel=1e-9)
    assert max(sizes) <= document["maxSizePerFPGA"]


def must_be_best(model, stages, allow_empty):
    best = brute_force(model, stages, allow_empty)
    try:
        best_plan = plan(model, stages, allow_empty=allow_empty)
    except Infeasible:
        assert not best
        return
    assert (best_plan.period, best_plan.latency, best_plan.bytes_moved) == tuple(
        map(float, best[0][:3])
    )
    assert best_plan.optimal
    assert best_plan.lower_bound == best_plan.period


@given(questions())
@settings(deadline=None, max_examples=80)
def test_the_plan_is_the_best_of_all_splits(question):
    must_be_best(*question)


@given(questions(most=10, stages=2))
@settings(deadline=None, max_examples=25)
def test_ten_ops_on_unequal_devices_with_little_memory(question):
    must_be_best(*question)


@given(questions())
@settings(deadline=None, max_examples=50)
def test_the_k_best_are_sorted_distinct_and_complete(question):
    model, stages, _ = question
    best = brute_force(model, stages, False)
    if not best:
        return
    for k in (1, 3, 40):
        plans = k_best(model, stages, k)
        costs = [(p.period, p.latency, p.bytes_moved) for p in plans]
        assert costs == [tuple(map(float, b[:3])) for b in best[:k]]
        assert len({p.stages for p in plans}) == len(plans)


@given(questions())
@settings(deadline=None, max_examples=60)
def test_a_plan_costs_what_its_split_costs(question):
    model, stages, allow_empty = question
    try:
        best = plan(model, stages, allow_empty=allow_empty)
    except Infeasible:
        return
    period, latency, transfers, memory, loads = model_cost(model, best.stages)
    assert (best.period, best.latency, best.bytes_moved) == (
        float(period),
        float(latency),
        float(transfers),
    )
    assert (list(best.loads), list(best.memory)) == ([*map(float, loads)], [*map(float, memory)])
    again = evaluate(model, best.stages, allow_empty=allow_empty)
    assert again.loads == best.loads
    assert again.cuts == best.cuts


@given(models(most=6), st.floats(1e-9, 1e9))
@settings(deadline=None, max_examples=40)
def test_the_unit_of_time_changes_nothing(model, factor):
    def by(rows):
        return tuple(tuple(x * factor for x in row) for row in rows)

    stages = min(2, len(model.contraction.groups))
    scaled = replace(
        model,
        times=by(model.times),
        send=by(model.send),
        receive=by(model.receive),
        overheads=tuple(x * factor for x in model.overheads),
    )
    assert plan(scaled, stages).period == pytest.approx(
        plan(model, stages).period * factor, rel=1e-9
    )


@pytest.fixture
def forbidding():
    """A chain in which every other edge has a cost that no period can have."""
    edges = [{"sourceId": i, "destId": i + 1, "cost": 1e15 if i % 2 else 0.125} for i in range(9)]
    nodes = [
        {"id": i, "supportedOnFpga": 1, "fpgaLatency": 0.1 * (i + 1), "size": 0} for i in range(10)
    ]
    return from_workload({"maxSizePerFPGA": 0, "nodes": nodes, "edges": edges})


def test_a_cost_that_forbids_does_not_blur_the_others(forbidding):
    best = plan(forbidding, 2)
    assert best.stages == (tuple(range(7)), (7, 8, 9))
    assert best.period == pytest.approx(2.8 + 0.125)


def test_lists_are_right_beside_a_cost_that_forbids(forbidding):
    splits = (evaluate_cuts(forbidding, [(1 << place) - 1]) for place in range(1, 10))
    ranked = sorted(splits, key=lambda split: split.rank)
    for k in (2, 5, 9):
        periods = [split.period for split in k_best(forbidding, 2, k)]
        assert periods == [split.period for split in ranked[:k]]
    front = pareto_front(forbidding, 2)
    assert front[0][0].period == ranked[0].period


@pytest.mark.parametrize(("number", "length", "stages"), [(2, 6, 3), (5, 3, 3), (9, 2, 2)])
def test_of_splits_of_equal_times_those_that_move_fewest_bytes_come_first(number, length, stages):
    model, ops = parallel_chains(number, length), number * length
    taken = replace(
        model.tensors[0], name="x", producer=None, consumers=(0, 1), bytes=1e4
    )  # an input does not count
    free = ((0.0,) * (len(model.tensors) + 1),)
    model = replace(
        model, times=((1.0,) * ops,), tensors=(*model.tensors, taken), send=free, receive=free
    )
    levels = [
        [d for d in downsets(model.contraction) if d.bit_count() * stages == n * ops]
        for n in range(1, stages)
    ]
    chains = [cuts for cuts in product(*levels) if all(not a & ~b for a, b in pairwise(cuts))]
    transfers = sorted(evaluate_cuts(model, cuts).bytes_moved for cuts in chains)
    assert plan(model, stages).bytes_moved == transfers[0]
    assert [p.bytes_moved for p in k_best(model, stages, 5)] == transfers[:5]


@pytest.mark.parametrize("cheap", [range(6), range(6, 12)])
def test_of_very_many_splits_of_equal_times_the_one_that_moves_fewest_bytes_is_found(cheap):
    transfers = tuple(Transfer(f"t{i}", i, (12,), 1.0 if i in cheap else 2.0) for i in range(12))
    times, free = (*[1.0] * 12, 0.0), ((0.0,) * 12,)
    model = CostModel(
        "m", tuple(map(str, range(13))), (*[0] * 12, (1 << 12) - 1), (times,), transfers, free, free
    )
    assert plan(model, 2).stages[0] == tuple(cheap)


def test_what_a_stage_receives_and_sends_takes_of_its_memory():
    transfers = (Transfer("t", 0, (1,), 20.0), Transfer("u", 1, (2,), 5.0))
    free = ((0.0, 0.0),)
    model = CostModel(
        "m", ("a", "b", "c"), (0, 1, 2), ((5.0, 1.0, 1.0),), transfers, free, free, memory=(10.0,)
    )
    assert plan(model, 2).stages == ((0,), (1, 2))
    assert plan(replace(model, activations=True), 2).stages == ((0, 1), (2,))


def test_what_cannot_be_asked_is_refused():
    model = from_workload(
        {
            "maxSizePerFPGA": 9,
            "nodes": [{"id": 7, "supportedOnFpga": 0, "fpgaLatency": 1, "size": 1}],
            "edges": [],
        }
    )
    with pytest.raises(ConfigError, match="stages is 0"):
        plan(model, 0)
    with pytest.raises(Infeasible, match="only 1 groups"):
        plan(model, 2)
    with pytest.raises(Infeasible, match="'7' is supported on no device"):
        plan(model, 1)


@pytest.mark.parametrize("asked", [0, 3, 10])
def test_a_deadline_leaves_a_split_and_a_bound(asked):
    document = workload("layer_inceptionv3")
    best = plan(from_workload(document), 6, deadline=ticks(asked))
    assert not best.optimal
    assert 51.8 < best.lower_bound <= 52.2017
    assert 52.2016 < best.period < math.inf


@pytest.mark.parametrize("asked", range(0, 24, 2))
@pytest.mark.parametrize("unit", [1.0, 0.1, 1.1])
def test_a_deadline_leaves_no_bound_above_the_least_period(asked, unit):
    times = tuple(unit * t for t in (1.0, 1.0, 1.0, 7.0, 8.0, 2.0, 0.5, 1.5))
    model = replace(parallel_chains(2, 4, transfer=0.0), times=(times,))
    best, least = plan(model, 2, deadline=ticks(asked)), plan(model, 2).period
    assert least == pytest.approx(11 * unit)
    assert best.lower_bound <= least <= best.period
    assert not best.optimal or best.period == least


def ticks(count):
    """A deadline that passes when it has been asked ``count`` times."""
    left = iter(range(count))
    return lambda: next(left, None) is None


@settings(deadline=None, max_examples=150)
@given(seed=st.integers(0, 10**6), allow_empty=st.booleans(), data=st.data())
def test_ops_without_time_leave_the_best_split(seed, allow_empty, data):
    model, stages = half_without_time(seed)
    if data.draw(st.booleans()):
        model = data.draw(with_runtimes(model, model.devices or 1))
    best = brute_force(model, stages, allow_empty)[:1]
    try:
        result = plan(model, stages, allow_empty=allow_empty)
    except Infeasible:
        assert not best
        return
    assert (result.period, result.latency, result.bytes_moved) == tuple(map(float, best[0][:3]))
    assert result.optimal


def test_equal_branches_are_solved():
    model = branchy(1, 6, transfer=0.0)
    model = replace(model, times=((1.0, *(2.0, 3.0) * 6, 1.0),))
    best = plan(model, 3)
    assert (best.period, best.optimal) == (11.0, True)
