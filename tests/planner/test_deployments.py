from dataclasses import replace

import pytest

from autosplit.errors import ConfigError, Infeasible
from autosplit.hardware.profiling.graph_file import from_document
from autosplit.planner import Option, Question, Row, Stage, cut_set, evaluate, partition
from tests.planner.graphs import chain, on_unlike_devices, random_dag, replicas_of, workload

# (workload, share of the model that a replica holds): period on 6 cores, replicas, loads.
ANCHORS = {
    ("layer_bert24", None): (15.4010, None, None),
    ("layer_bert24", 1 / 2): (15.5453, (1, 3, 2), (15.064, 46.636, 30.714)),
    ("layer_bert24", 1 / 3): (16.2095, None, None),
    ("layer_resnet50", None): (33.7197, (4, 2), (134.879, 66.667)),
    ("layer_resnet50", 1 / 2): (33.8471, None, None),
}


def limited_workload(name, share):
    """The costs of a public graph, of which a replica may hold a share."""
    costs = from_document(workload(name), name)
    return costs if share is None else costs.with_memory(sum(costs.sizes) * share)


def plan_deployment(costs, cores, **options):
    return partition(costs, Question.of_cores(cores), **options)


@pytest.mark.parametrize(("name", "share"), ANCHORS)
def test_published_optima_on_six_cores(name, share):
    period, replicas, loads = ANCHORS[name, share]
    best = plan_deployment(limited_workload(name, share), 6)
    assert best.optimal
    assert best.period == pytest.approx(period, abs=5e-5)
    if replicas:
        assert replicas_of(best) == replicas
        assert best.loads == pytest.approx(loads, abs=5e-4)


def test_replicas_of_a_stage_with_states_hold_whole_streams():
    # The first op of six has a state; the others are replicated freely.
    model = chain(*[1.0] * 6, states=(("h", 1),))
    one = plan_deployment(model, 4)
    assert (one.period, replicas_of(one)) == (5 / 3, (1, 3))
    assert plan_deployment(replace(model, streams=4), 4).period == 6 / 4
    # Of three streams one of two replicas has two.
    whole = [Stage(tuple(range(6)), (Option(Row(), 2),))]
    assert evaluate(replace(model, streams=3), whole).period == 4.0
    # Of equally few devices of two kinds, both fast enough, those of the least latency.
    two = on_unlike_devices(chain(10.0, 1.0, states=(("h", 1),)), (10.0, 1.0), (20.0, 5.0))
    assert plan_deployment(two, {"0": 2, "1": 2}).latency == 11.0


@pytest.mark.parametrize("is_late", [True, False])
def test_too_little_time_or_too_many_cuts_leave_a_deployment_and_a_bound(monkeypatch, is_late):
    model = random_dag(14, 4, transfer=0.5, size=1.0, memory=4.0)
    least = plan_deployment(model, 8).period
    if not is_late:
        monkeypatch.setattr(cut_set, "row_limit", lambda problem: 10)
    best = plan_deployment(model, 8, deadline=lambda: is_late)
    assert is_late or "legal cuts" in best.note
    assert not best.optimal
    assert best.lower_bound <= least <= best.period


def test_what_makes_no_sense_is_refused():
    model = random_dag(6, 0, size=1.0)
    with pytest.raises(ConfigError, match="number of cores is 0"):
        plan_deployment(model, 0)
    with pytest.raises(ConfigError, match="no costs of devices 'gpu'"):
        partition(model, Question.of_cores(2, "gpu"))
    with pytest.raises(Infeasible, match="memory"):
        plan_deployment(model.with_memory(0.1), 2)
    alike = on_unlike_devices(chain(1.0, 2.0), *[(1.0, 2.0)] * 3)
    with pytest.raises(ConfigError, match=r"19 \+ 19 \+ 19 cores of 3 kinds .* fewer cores"):
        plan_deployment(alike, dict.fromkeys("012", 19))
