from dataclasses import replace
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.cuts import downsets
from autosplit.cuts.stages import stages_between
from autosplit.deployment import Option, Stage
from autosplit.errors import ConfigError, Infeasible
from autosplit.hardware.profiling.graph_file import from_document
from autosplit.planner import Kind, Question, Transfer, evaluate, front, k_best, partition
from tests.planner.graphs import Clock, parallel_chains, table, with_times, workload
from tests.planner.models import models

STAGES = (2, 3, 4, 6)
# By workload the published periods of so many stages.
PUBLISHED = {
    "layer_bert24": (47.478953125, 32.24290625, 24.91690625, 17.78990625),
    "layer_resnet50": (101.28140625, 67.6942578125, 50.9898515625, 34.2228515625),
    "layer_inceptionv3": (155.664996154785, 103.818712585449, 78.352723327637, 52.201631652832),
    "operator_bert_l-3": (33.989101556140, 27.9185676799125),
}
OPTIMA = [(net, n, ms) for net, of in PUBLISHED.items() for n, ms in zip(STAGES, of, strict=False)]


def plan(model, stages, **options):
    return partition(model, Question.of_split(stages, model.kinds[0].name), **options)


@pytest.mark.parametrize(("name", "stages", "period"), OPTIMA)
def test_the_published_optima_are_met(name, stages, period):
    document = workload(name)
    best = plan(from_document(document), stages)
    assert best.optimal
    assert best.period == pytest.approx(period, rel=1e-9)
    assert best.period == pytest.approx(best.lower_bound, rel=1e-9)
    assert max(best.memory) <= document["maxSizePerFPGA"]


@given(models(kinds=1), st.floats(1e-9, 1e9))
def test_the_unit_of_time_changes_nothing(model, factor):
    def scaled(values):
        return tuple(value * factor for value in values)

    rows = [replace(r, times=scaled(r.times), overhead=r.overhead * factor) for r in model.rows]
    kinds = [replace(k, send=scaled(k.send), receive=scaled(k.receive)) for k in model.kinds]
    other = replace(model, rows=tuple(rows), kinds=tuple(kinds))
    question = Question.of_split(min(2, len(model.contraction.groups)), "k0")
    try:
        best = partition(model, question)
    except Infeasible:
        return
    assert partition(other, question).period == pytest.approx(best.period * factor, rel=1e-9)


def test_a_cost_that_forbids_does_not_blur_the_others():
    """Of a chain in which every other edge has a cost that no period can have."""
    edges = [{"sourceId": i, "destId": i + 1, "cost": 1e15 if i % 2 else 0.125} for i in range(9)]
    node = {"supportedOnFpga": 1, "size": 0}
    nodes = [{"id": i, "fpgaLatency": 0.1 * (i + 1), **node} for i in range(10)]
    forbidding = from_document({"maxSizePerFPGA": 0, "nodes": nodes, "edges": edges})
    best = plan(forbidding, 2)
    assert best.split == (tuple(range(7)), (7, 8, 9))
    assert best.period == pytest.approx(2.8 + 0.125)
    splits = (at_cuts(forbidding, [(1 << place) - 1]) for place in range(1, 10))
    ranked = sorted(splits, key=lambda split: split.rank)
    for k in (2, 5, 9):
        periods = [split.period for split in k_best(forbidding, Question.of_split(2), k)]
        assert periods == [split.period for split in ranked[:k]]
    assert front(forbidding, Question.of_split(2))[0][0].period == ranked[0].period


def at_cuts(model, cuts):
    """The plan of stages between some cuts on equal devices."""
    option = (Option(model.rows[0].row),)
    return evaluate(model, [Stage(ops, option) for ops in stages_between(model, cuts)])


@pytest.mark.parametrize(("number", "length", "stages"), [(2, 6, 3), (5, 3, 3), (9, 2, 2)])
def test_of_splits_of_equal_times_those_that_move_fewest_bytes_come_first(number, length, stages):
    model, ops = parallel_chains(number, length), number * length
    # An input does not count.
    taken = replace(model.tensors[0], name="x", producer=None, consumers=(0, 1), bytes=1e4)
    model = replace(with_times(model, (1.0,) * ops), kinds=(Kind(),))
    model = replace(model, tensors=(*model.tensors, taken))
    levels = [d for d in downsets(model.contraction) if d.bit_count() * stages % ops == 0]
    levels = [[d for d in levels if d.bit_count() * stages == n * ops] for n in range(1, stages)]
    chains = [cuts for cuts in product(*levels) if all(not a & ~b for a, b in pairwise(cuts))]
    transfers = sorted(at_cuts(model, cuts).bytes_moved for cuts in chains)
    assert plan(model, stages).bytes_moved == transfers[0]
    assert [p.bytes_moved for p in k_best(model, Question.of_split(stages), 5)] == transfers[:5]


@pytest.mark.parametrize("cheap", [range(6), range(6, 12)])
def test_of_very_many_splits_of_equal_times_the_one_that_moves_fewest_bytes_is_found(cheap):
    transfers = tuple(Transfer(f"t{i}", i, (12,), 1.0 if i in cheap else 2.0) for i in range(12))
    model = table((*[0] * 12, (1 << 12) - 1), (*[1.0] * 12, 0.0), tensors=transfers)
    assert plan(model, 2).split[0] == tuple(cheap)


def test_what_cannot_be_asked_is_refused():
    node = {"id": 7, "supportedOnFpga": 0, "fpgaLatency": 1, "size": 1}
    model = from_document({"maxSizePerFPGA": 9, "nodes": [node], "edges": []})
    with pytest.raises(ConfigError, match="stages is 0"):
        plan(model, 0)
    with pytest.raises(Infeasible, match="only 1 groups"):
        plan(model, 2)
    with pytest.raises(Infeasible, match="'7' is supported on no device"):
        plan(model, 1)
    with pytest.raises(Infeasible, match="model 'graph' has no op"):
        plan(table((), ()), 1)


@pytest.mark.parametrize("unit", [1.0, 0.1, 1.1])
def test_a_deadline_leaves_no_bound_above_the_least_period(unit):
    times = tuple(unit * t for t in (1.0, 1.0, 1.0, 7.0, 8.0, 2.0, 0.5, 1.5))
    model = with_times(parallel_chains(2, 4, transfer=0.0), times)
    least = plan(model, 2).period
    assert least == pytest.approx(11 * unit)
    for asked in range(0, 24, 2):
        best = plan(model, 2, deadline=Clock(asked))
        assert best.lower_bound <= least <= best.period
        assert not best.optimal or best.period == least
