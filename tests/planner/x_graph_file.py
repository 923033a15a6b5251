import copy
import json
import math

import pytest
from hypothesis import given, settings

from autosplit.errors import AutosplitError, GraphError
from autosplit.graph import Op, build
from autosplit.planner import CostModel, Link, evaluate, from_workload, plan, to_workload
from tests.planner.reference import file_loads
from tests.planner.strategies import models

GOOD = {
    "maxFPGAs": 2,
    "maxCPUs": 0,
    "maxSizePerFPGA": 100,
    "nodes": [
        {
            "id": 5,
            "supportedOnFpga": True,
            "cpuLatency": 1,
            "fpgaLatency": 2.0,
            "isBackwardNode": False,
            "size": 1,
        },
        {"id": "b", "supportedOnFpga": 1, "fpgaLatency": 3, "size": 2, "colorClass": 1},
        {"id": 1, "supportedOnFpga": 1, "fpgaLatency": 4, "size": 3, "colorClass": None},
    ],
    "edges": [
        {"sourceId": 1, "destId": 5, "cost": 0.5, "size": 7},
        {"sourceId": 1, "destId": "b", "cost": 0.5},
    ],
}


def changed(path, value):
    """GOOD with the entry at a path replaced, or left out where value is ..."""
    document = copy.deepcopy(GOOD)
    holder = document
    for key in path[:-1]:
        holder = holder[key]
    if value is ...:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return document


def test_nodes_may_stand_in_any_order_and_keep_their_ids():
    costs = from_workload(GOOD)
    assert costs.ids == (1, 5, "b")
    assert costs.times == ((4.0, 2.0, 3.0),)
    best = plan(costs, 2)
    assert [[costs.ids[i] for i in ops] for ops in best.stages] == [[1], [5, "b"]]
    assert best.loads == (4.5, 5.5)
    assert best.bytes_moved == 7
    assert best.memory == (3.0, 3.0)


@pytest.mark.parametrize("least", [1e-320, 1e-300, 1e199])
def test_times_may_be_in_any_unit(least):
    assert plan(from_workload(changed(("nodes", 0, "fpgaLatency"), least)), 2).lower_bound >= 4.5
    document = copy.deepcopy(GOOD) | {"edges": []}
    for node in document["nodes"]:
        node["fpgaLatency"] = least
    assert plan(from_workload(document), 3).period == least


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("nodes", 0, "fpgaLatency"), -1, "node 5 has fpgaLatency -1"),
        (("nodes", 0, "fpgaLatency"), math.nan, "nan"),
        (("nodes", 0, "fpgaLatency"), math.inf, "inf"),
        (("nodes", 0, "fpgaLatency"), 1e308, "node 5 has fpgaLatency 1e+308; give at most"),
        (("nodes", 0, "fpgaLatency"), True, "True"),
        (("nodes", 0, "fpgaLatency"), "2", "'2'"),
        (("nodes", 0, "fpgaLatency"), None, "None"),
        (("nodes", 0, "fpgaLatency"), 10**400, "fpgaLatency"),
        (("nodes", 0, "fpgaLatency"), ..., "no fpgaLatency"),
        (("nodes", 0, "cpuLatency"), -1, "cpuLatency"),
        (("nodes", 1, "size"), -2, "node 'b' has size -2"),
        (("nodes", 1, "size"), ..., "no size"),
        (("nodes", 1, "supportedOnFpga"), "yes", "supportedOnFpga"),
        (("nodes", 1, "colorClass"), [1], "colorClass"),
        (("nodes", 1, "id"), 5, "id 5 appears twice"),
        (("nodes", 1, "id"), ..., "no id"),
        (("nodes", 1, "id"), True, "id True"),
        (("nodes", 1, "id"), [1], "id"),
        (("nodes", 1), 3, "node 1 is 3"),
        (("nodes",), {}, "nodes"),
        (("nodes",), [], "no nodes"),
        (("nodes",), ..., "no nodes"),
        (("edges",), ..., "no edges"),
        (("edges",), 4, "edges 4"),
        (("edges", 0), None, "edge 0"),
        (("edges", 0, "sourceId"), 9, "sourceId 9"),
        (("edges", 0, "destId"), "x", "destId 'x'"),
        (("edges", 0, "destId"), 1, "reads its own output"),
        (("edges", 0, "cost"), 0.25, "different costs"),
        (("edges", 0, "cost"), -0.5, "-0.5"),
        (("edges", 0, "cost"), math.inf, "inf"),
        (("edges", 0, "cost"), ..., "no cost"),
        (("edges", 0, "size"), -7, "size -7"),
        (("edges", 1), {"sourceId": 5, "destId": 1, "cost": 0}, "cycle"),
        (("maxSizePerFPGA",), -1, "maxSizePerFPGA"),
        (("maxSizePerFPGA",), ..., "no maxSizePerFPGA"),
        (("overhead",), math.nan, "overhead"),
    ],
)
def test_what_is_malformed_is_named(path, value, named):
    with pytest.raises(GraphError) as error:
        from_workload(changed(path, value))
    assert named in str(error.value)


@pytest.mark.parametrize("document", [None, 3, [], "graph", {}])
def test_what_is_no_graph_is_refused(document):
    with pytest.raises(GraphError):
        from_workload(document)


@given(models(most=6, groups=True, unsupported=True))
@settings(deadline=None)
def test_a_saved_graph_reads_back_with_the_same_groups_and_times(model):
    again = from_workload(json.loads(json.dumps(to_workload(model), allow_nan=False)))
    place = [again.index[name] for name in model.names]
    assert [again.times[0][i] for i in place] == list(model.times[0])
    assert [again.sizes[i] for i in place] == list(model.sizes)
    groups = [
        {model.names[i] for i in range(len(model.names)) if g >> i & 1}
        for g in model.contraction.groups
    ]
    saved = [
        {again.names[i] for i in range(len(again.names)) if g >> i & 1}
        for g in again.contraction.groups
    ]
    assert sorted(map(sorted, groups)) == sorted(map(sorted, saved))


def test_devices_that_differ_are_saved_too():
    model = CostModel("m", ("a", "b"), (0, 1), ((1.0, math.inf), (3.0, 4.0)))
    assert from_workload(to_workload(model)).times == model.times


def measured(**options):
    ops = (Op("A", "k", (), ("x",), ("a",), 10), Op("B", "k", (), ("a", "x"), ("b",), 20))
    graph = build(
        "net",
        ops,
        {"x": ((4,), "float32", 16), "a": ((2,), "float32", 8), "b": ((1,), "float32", 4)},
        ("x",),
        ("b",),
    )
    return CostModel.from_graph(graph, **options)


def test_a_measured_net_pays_links_for_inputs_tensors_and_outputs():
    costs = measured(
        op_times=[[1.0, 2.0]], links=Link(bandwidth=4.0, latency=0.5), overheads=[0.25]
    )
    cost = evaluate(costs, [(0,), (1,)])
    # A: overhead, op, x in, a out; B: overhead, op, a and x in, b out
    assert cost.loads == (0.25 + 1 + 4.5 + 2.5, 0.25 + 2 + 2.5 + 4.5 + 1.5)
    assert cost.bytes_moved == 8
    assert cost.memory == (10 + 16 + 8, 20 + 8 + 16)


def test_a_tensor_that_is_read_on_and_an_output_leaves_its_stage_once():
    ops = (Op("A", "k", (), ("x",), ("a",)), Op("B", "k", (), ("a",), ("b",)))
    graph = build("net", ops, dict.fromkeys("xab", ((1,), "float32", 4)), ("x",), ("a", "b"))
    costs = CostModel.from_graph(graph, [[1.0, 2.0]], links=Link(latency=0.5))
    assert evaluate(costs, [(0,), (1,)]).loads == (1 + 0.5 + 0.5, 2 + 0.5 + 0.5)


def test_links_that_cost_nothing_leave_the_ops():
    assert evaluate(measured(op_times=[[1.0, 2.0]]), [(0,), (1,)]).loads == (1.0, 2.0)


def test_each_device_has_its_own_times_and_link():
    costs = measured(op_times=[[1.0, 2.0], [10.0, 20.0]], links=[Link(), Link(latency=1.0)])
    assert evaluate(costs, [(0,), (1,)]).loads == (1.0, 20.0 + 1 + 1 + 1)
    assert costs.devices == 2


def test_a_saved_measured_net_has_the_loads_of_the_file():
    costs = measured(op_times=[[1.0, 2.0]], links=Link(bandwidth=4.0))
    document = to_workload(costs)
    assert file_loads(document, [["A"], ["B"]])[0] == [1.0 + 2.0, 2.0 + 1.0 + 2.0]


@pytest.mark.parametrize("times", [[[1.0]], [[1.0, -1.0]], [[1.0, math.nan]], []])
def test_times_that_cannot_be_are_refused(times):
    with pytest.raises(AutosplitError):
        measured(op_times=times)
