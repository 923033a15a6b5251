from dataclasses import replace

from autosplit.planner import Kind, Row, RowCosts, fits
from studies.benchmarks.planned_baselines import planned_baselines, unlike_baselines
from tests.planner.graphs import costed

CHAIN = costed(6, [(i, i + 1) for i in range(5)], transfer=0.0)


def test_equal_shares_of_ops_parameters_and_flops():
    model = replace(CHAIN, sizes=(10.0, 0, 0, 0, 0, 10.0), flops=(1.0, 1.0, 2.0, 0, 0, 0))
    result = planned_baselines(model, 2)
    assert result["ops"].split == ((0, 1, 2), (3, 4, 5))
    assert result["params"].split[0] == (0,)
    assert result["FLOPs"].split == ((0, 1), (2, 3, 4, 5))
    assert planned_baselines(CHAIN, 2)["FLOPs"] is None


def test_a_baseline_that_does_not_fit_is_left_out():
    sizes = (10.0, 10.0, 10.0, 0.0, 0.0, 0.0)
    baselines = planned_baselines(replace(CHAIN, sizes=sizes).with_memory(20.0), 2)
    assert baselines["ops"] is None
    assert baselines["params"] is not None


def test_rules_for_unlike_devices_give_each_a_range_of_layers():
    times = tuple(1.0 for _ in CHAIN.names)
    rows = tuple(RowCosts(Row(name), times) for name in "01")
    kinds = (Kind("0", memory=2.0), Kind("1", memory=4.0))
    model = replace(CHAIN, rows=rows, kinds=kinds, sizes=(3.0, 1.0, 1.0, 1.0, 0.0, 0.0))
    plans = unlike_baselines(model, [5.0, 1.0])
    assert {rule: tuple(map(len, plan.split)) for rule, plan in plans.items()} == {
        "equal layer counts": (3, 3), "equal parameters": (1, 5), "layers by memory": (2, 4),
        "layers by memory, largest first": (4, 2), "memory filled in order": (1, 5),
        "layers by speed": (5, 1),
    }  # fmt: skip
    roomy = replace(model, kinds=(Kind("0", memory=8.0), kinds[1]))
    assert len(unlike_baselines(roomy, [5.0, 1.0])["memory filled in order"].split) == 1
    assert plans["layers by memory, largest first"].stages[0].options[0].row.kind == "1"
    assert not any(fits(model, plan) for plan in plans.values())
