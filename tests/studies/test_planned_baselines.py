import math
from dataclasses import replace

from hypothesis import given

from autosplit.errors import Infeasible
from autosplit.planner import Question, partition
from studies.benchmarks import planned_baselines as baselines_module
from tests.planner.graphs import costed, on_unlike_devices, parallel_chains
from tests.planner.models import models

CHAIN = costed(6, [(i, i + 1) for i in range(5)], transfer=0.0)
UNSIZED = parallel_chains(1, 6)


def plan(model, stages):
    return partition(model, Question.of_split(stages, model.kinds[0].name))


def planned_baselines(model, stages, **options):
    kinds = [model.kinds[0].name] * stages
    return baselines_module.planned_baselines(model, kinds, **options)


@given(models(kinds=1))
def test_no_baseline_is_better_than_the_plan(model):
    model = replace(model, rows=model.rows[:1])
    stages = min(2, len(model.contraction.groups))
    try:
        least = plan(model, stages).period
    except Infeasible:
        least = math.inf
    for baseline in planned_baselines(model, stages):
        if baseline.plan is not None:
            assert baseline.plan.period >= least


def named(model, stages):
    return {b.name: b for b in planned_baselines(model, stages)}


def test_equal_shares_of_ops_parameters_and_flops():
    model = replace(CHAIN, sizes=(10.0, 0, 0, 0, 0, 10.0), flops=(1.0, 1.0, 2.0, 0, 0, 0))
    result = named(model, 2)
    assert result["equal op count"].plan.split == ((0, 1, 2), (3, 4, 5))
    assert result["equal parameters"].plan.split[0] == (0,)
    assert result["equal FLOPs"].plan.split == ((0, 1), (2, 3, 4, 5))
    assert named(CHAIN, 2)["equal FLOPs"].note


def test_single_tensor_cuts_do_not_cut_two():
    # 0 -> (1 -> 2 -> 3, 4 -> 5 -> 6) -> 7 -> 8
    model = costed(9, [(0, 1), (1, 2), (2, 3), (0, 4), (4, 5), (5, 6), (3, 7), (6, 7), (7, 8)])
    result = named(model, 3)["single-tensor cuts"].plan
    assert result.split == ((0,), (1, 2, 3, 4, 5, 6, 7), (8,))


def test_a_baseline_that_does_not_fit_says_why():
    sizes = (10.0, 10.0, 10.0, 0.0, 0.0, 0.0)
    baselines = named(replace(UNSIZED, sizes=sizes).with_memory(20.0), 2)
    assert baselines["equal op count"].plan is None
    assert baselines["equal op count"].note == "exceeds the memory of a device"
    assert baselines["equal parameters"].plan is not None
    times = UNSIZED.rows[0].times
    model = on_unlike_devices(UNSIZED, times, (*times[:5], math.inf))
    unlike = {b.name: b for b in baselines_module.planned_baselines(model, ["0", "1"])}
    assert unlike["equal op count"].note == "puts an op on a device that cannot run it"
