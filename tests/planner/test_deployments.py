import json
import math
import operator
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosplit.cuts import downsets, members
from autosplit.errors import ConfigError, Infeasible, SplitError
from autosplit.planner import CostModel, evaluate_deployment, from_workload, plan, plan_deployment
from autosplit.planner.partition import cut_set
from tests.planner.graphs import branchy, half_without_time, parallel_chains, random_dag
from tests.planner.milp import least_deployment_period
from tests.planner.reference import all_splits, model_cost
from tests.planner.strategies import models, with_runtimes, with_states

WORKLOADS = Path(__file__).parents[2] / ".." / "shared" / "workloads"
# (workload, share of the model that a replica holds): period on 6 cores, replicas, loads.
ANCHORS = {
    ("layer_bert24", None): (15.4010, None, None),
    ("layer_bert24", 1 / 2): (15.5453, (1, 3, 2), (15.064, 46.636, 30.714)),
    ("layer_bert24", 1 / 3): (16.2095, None, None),
    ("layer_resnet50", None): (33.7197, (4, 2), (134.879, 66.667)),
    ("layer_resnet50", 1 / 2): (33.8471, None, None),
}


def workload(name, share=None):
    file = WORKLOADS / f"{name}.json"
    if not file.exists():
        pytest.skip(f"the public workloads are not at {WORKLOADS}")
    costs = from_workload(json.loads(file.read_text()), name)
    return costs if share is None else replace(costs, memory=(sum(costs.sizes) * share,))


@pytest.mark.parametrize(("name", "share"), ANCHORS)
def test_published_optima_on_six_cores(name, share):
    period, replicas, loads = ANCHORS[name, share]
    best = plan_deployment(workload(name, share), 6)
    assert best.optimal
    assert best.period == pytest.approx(period, abs=5e-5)
    if replicas:
        assert best.replicas == replicas
        assert best.loads == pytest.approx(loads, abs=5e-4)


def least_period_in_fractions(costs, cores):
    """The recursion over all downsets and numbers of cores, in exact fractions."""
    cuts = downsets(costs.contraction)
    least = {(0, used): Fraction(0) for used in range(cores + 1)}
    for end in cuts[1:]:
        for start in (cut for cut in cuts if cut != end and not cut & ~end):
            before, stage = (costs.contraction.expand(part) for part in (start, end & ~start))
            after = [i for i in range(len(costs.names)) if not (before | stage) >> i & 1]
            parts = [list(members(before)), list(members(stage)), after]
            *_, memory, loads = model_cost(costs, parts)
            if memory[1] > Fraction(costs.memory[0]):
                continue
            for used, replicas in product(range(1, cores + 1), range(1, cores + 1)):
                if replicas <= used and (start, used - replicas) in least:
                    period = max(least[start, used - replicas], loads[1] / replicas)
                    least[end, used] = min(least.get((end, used), period), period)
    return float(least[cuts[-1], cores])


@pytest.mark.parametrize("share", [None, 1 / 2, 1 / 3])
def test_the_published_optima_are_exact(share):
    costs = workload("layer_bert24", share)
    expected = least_period_in_fractions(costs, 6)
    assert plan_deployment(costs, 6).period == pytest.approx(expected, rel=1e-9)


@pytest.mark.integration
@pytest.mark.parametrize("cores", [6, 16])
@pytest.mark.parametrize("share", [1 / 2, 1 / 3, 1 / 4])
@pytest.mark.parametrize(
    "name", ["layer_bert24", "layer_resnet50", "layer_inceptionv3", "operator_bert_l-3"]
)
def test_public_workloads_are_solved(name, share, cores):
    costs = workload(name, share)
    best = plan_deployment(costs, cores)
    assert best.optimal
    assert best.cores <= cores
    assert max(best.memory) <= costs.memory[0]


def shapes(cores, thread_counts, stages):
    """All (replicas, threads) of ``stages`` stages on up to ``cores`` cores."""
    one_stage = [(r, w) for w in thread_counts for r in range(1, cores // w + 1)]
    for shape in product(one_stage, repeat=stages):
        if sum(r * w for r, w in shape) <= cores:
            yield shape


def items_at_once(model, ops, replicas):
    """Of streams that are dealt out in turn; None for replicas that another number equals."""
    if not any(mask >> op & 1 for _, mask in model.states for op in ops):
        return replicas
    most = [len(range(0, model.streams, count)) for count in (replicas, replicas - 1) if count]
    return None if len(set(most)) < len(most) else Fraction(model.streams, most[0])


def brute_force(model, cores, thread_counts):
    """(period, cores, latency, peak memory) of all deployments, the best one first."""
    ranks = []
    for stages in range(1, cores + 1):
        for split in all_splits(model, stages):
            for shape in shapes(cores, thread_counts, stages):
                rows = [thread_counts.index(w) for _, w in shape]
                _, latency, _, memory, loads = model_cost(model.on_devices(rows), split)
                limits = [model.memory[row if len(model.memory) > 1 else 0] for row in rows]
                if latency >= 10**12 or any(map(float.__gt__, map(float, memory), limits)):
                    continue
                pairs = zip(split, shape, strict=True)
                divisors = [items_at_once(model, ops, r) for ops, (r, _) in pairs]
                if None in divisors:
                    continue
                period = max(map(operator.truediv, loads, divisors))
                ranks.append((period, sum(r * w for r, w in shape), latency, max(memory)))
    return sorted(ranks)


@st.composite
def questions(draw):
    thread_counts = draw(st.sampled_from([(1,), (1, 2), (2,), (1, 3), (2, 1)]))
    model = draw(
        models(
            most=4,
            devices=len(thread_counts),
            memory=draw(st.booleans()),
            groups=draw(st.booleans()),
            inputs=draw(st.booleans()),
            unsupported=draw(st.booleans()),
        )
    )
    # Rows are numbers of threads on the same cores, which move tensors alike.
    one = {key: getattr(model, key)[:1] for key in ("send", "receive", "memory")}
    model = replace(model, **one)
    if draw(st.booleans()):
        model = draw(with_runtimes(model, len(thread_counts)))
    if draw(st.booleans()):
        model = draw(with_states(model))
    return model, draw(st.integers(max(thread_counts), 4)), thread_counts


@settings(max_examples=150, deadline=None)
@given(questions())
def test_equal_to_brute_force(question):
    model, cores, thread_counts = question
    ranks = brute_force(model, cores, thread_counts)
    try:
        best = plan_deployment(model, cores, thread_counts=thread_counts)
    except Infeasible:
        assert not ranks
        return
    assert best.optimal
    assert (best.period, best.cores, best.latency) == pytest.approx(tuple(map(float, ranks[0][:3])))


def test_replicas_of_a_stage_with_states_hold_whole_streams():
    # The first op of six has a state; the others are replicated freely.
    model = replace(parallel_chains(1, 6, transfer=0.0), times=((1.0,) * 6,), states=(("h", 1),))
    one = plan_deployment(model, 4)
    assert (one.period, one.replicas) == (5 / 3, (1, 3))
    assert plan_deployment(replace(model, streams=4), 4).period == 6 / 4
    # Of three streams one of two replicas has two.
    whole = [tuple(range(6))]
    assert evaluate_deployment(replace(model, streams=3), whole, (2,), (1,)).period == 4.0


@pytest.mark.parametrize("seed", range(20))
def test_ops_without_time_leave_the_best_deployment(seed):
    model, _ = half_without_time(seed)
    model = model.on_devices([0])
    ranks = brute_force(model, 3, (1,))
    best = plan_deployment(model, 3)
    assert (best.period, best.cores, best.latency) == pytest.approx(tuple(map(float, ranks[0][:3])))


def with_threads(model, speedups):
    """A row of times a thread count, op i ``speedups[n][i % 2]`` times faster."""
    rows = [
        tuple(time / speedup[i % 2] for i, time in enumerate(model.times[0]))
        for speedup in speedups
    ]
    return replace(model, times=tuple(rows))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("memory", [math.inf, 3.0])
def test_equal_to_a_mixed_integer_programme(seed, memory):
    model = random_dag(9, seed, transfer=[0.1, 0.6, 2.0][seed], size=1.0, memory=memory)
    model = with_threads(replace(model, overheads=(0.2,)), [(1, 1), (2.2, 1.1)])
    expected = least_deployment_period(model, 4, (1, 2))
    best = plan_deployment(model, 4, thread_counts=(1, 2))
    assert best.period == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("cores", [6, 16])
def test_never_worse_than_its_corners(cores):
    for model in (random_dag(30, 1), branchy(3, 3), parallel_chains(4, 6)):
        free = plan_deployment(model, cores)
        assert free.period == pytest.approx(sum(model.times[0]) / cores)
        assert free.replicas == (cores,)
        tight = replace(model, sizes=model.times[0], memory=(sum(model.times[0]) / 3,))
        hybrid = plan_deployment(tight, cores)
        assert free.period <= hybrid.period <= plan(tight, min(cores, 6)).period
        assert hybrid.optimal


def test_one_long_op_is_replicated():
    model = replace(parallel_chains(1, 3, transfer=0.0), times=((1.0, 6.0, 1.0),))
    best = plan_deployment(replace(model, sizes=(1.0, 1.0, 1.0), memory=(1.0,)), 5)
    assert best.replicas == (1, 3, 1)
    assert best.period == 2.0


def test_threads_are_used_where_they_pay():
    model = with_threads(parallel_chains(1, 4), [(1, 1), (3, 3)])
    best = plan_deployment(model, 4, thread_counts=(1, 2))
    assert (best.replicas, best.threads) == ((2,), (2,))
    assert best.period == pytest.approx(sum(model.times[0]) / 6)


def test_ops_without_time_take_a_core():
    model = replace(parallel_chains(1, 3), times=((0.0, 0.0, 0.0),))
    best = plan_deployment(model, 4)
    assert (best.period, best.cores, best.optimal) == (0.0, 1, True)


def test_the_time_limit_leaves_a_deployment_and_a_bound():
    model = random_dag(24, 4, transfer=0.5, size=1.0, memory=4.0)
    best = plan_deployment(model, 8, deadline=lambda: True)
    assert not best.optimal
    assert best.lower_bound <= plan_deployment(model, 8).period <= best.period


def test_too_many_cuts_are_searched_along_a_few_orders(monkeypatch):
    monkeypatch.setattr(cut_set, "row_limit", lambda problem: 10)
    model = random_dag(16, 4, transfer=0.5, size=1.0, memory=4.0)
    best = plan_deployment(model, 8)
    assert "legal cuts" in best.note
    assert best.lower_bound <= best.period


def test_what_makes_no_sense_is_refused():
    model = random_dag(6, 0)
    for wrong in (
        {"cores": 0},
        {"cores": 2, "thread_counts": (1, 3)},
        {"cores": 2, "thread_counts": ()},
    ):
        with pytest.raises(ConfigError):
            plan_deployment(model, **wrong)
    with pytest.raises(ConfigError):
        plan_deployment(replace(model, overheads=(0.0, 1.0)), 2)
    with pytest.raises(Infeasible, match="memory"):
        plan_deployment(replace(model, sizes=(2.0,) * 6, memory=(1.0,)), 4)
    whole = [tuple(range(6))]
    for replicas, threads in (((0,), (1,)), ((1, 1), (1,)), ((1,), (2,))):
        with pytest.raises(SplitError):
            evaluate_deployment(model, whole, replicas, threads)


def test_a_cost_that_forbids_does_not_blur_the_others():
    nodes = [
        {"id": i, "supportedOnFpga": 1, "fpgaLatency": 10.0 * (i + 1), "size": 1} for i in range(6)
    ]
    edges = [{"sourceId": i, "destId": i + 1, "cost": 0 if i else 1e17} for i in range(5)]
    costs = from_workload({"maxSizePerFPGA": 4, "nodes": nodes, "edges": edges})
    best = plan_deployment(costs, 2)
    assert (best.period, best.lower_bound, best.optimal) == (110, 110, True)


def test_a_model_without_ops_has_no_deployment():
    with pytest.raises(Infeasible, match="model 'm' has no op"):
        plan_deployment(CostModel("m", (), (), ((),)), 2)
