import json
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from autosplit import api, planner
from autosplit.cli import main, options
from autosplit.hardware.compiled_model import CompiledModel
from autosplit.hardware.devices import device
from autosplit.hardware.measurement.results import LinkCost, Profile
from tests import nets


def node(number, ms, size=10, **more):
    costs = {"supportedOnFpga": 1, "cpuLatency": 0, "isBackwardNode": 0}
    return {"id": number, "fpgaLatency": ms, "size": size, **costs, **more}


GRAPH = {
    "maxFPGAs": 2,
    "maxCPUs": 0,
    "maxSizePerFPGA": 100,
    "nodes": [node(i, 1.0 + i) for i in (3, 1, 2, 0)],
    "edges": [{"sourceId": i, "destId": i + 1, "cost": 0.5} for i in range(3)],
}


@pytest.fixture
def graph(tmp_path):
    def write(document=GRAPH):
        file = tmp_path / "graph.json"
        file.write_text(json.dumps(document))
        return str(file)

    return write


def test_a_graph_file_is_planned_in_its_own_ids(graph, as_json):
    document = as_json("plan", graph(), "--stages", "2")
    assert document["stages"] == [[0, 1, 2], [3]]
    assert document["loads"] == [6.5, 4.5]
    assert (document["replicas"], document["threads"]) == ([1, 1], [1, 1])
    assert document["runtimes"] == [None, None]
    assert (document["period"], document["lower_bound"], document["optimal"]) == (6.5, 6.5, True)
    assert document["seconds"] > 0
    empty = as_json("plan", graph(), "--stages", "5", "--allow-empty")
    assert empty["period"] == pytest.approx(4.5)


def test_any_number_of_stages_up_to_the_devices_of_the_file(graph, as_json):
    # Moving the one tensor costs more than a second device gives.
    nodes = [node(i, 2, 1) for i in (0, 1)]
    edges = [{"sourceId": 0, "destId": 1, "cost": 3, "size": 1}]
    costs = GRAPH | {"maxFPGAs": 3, "nodes": nodes, "edges": edges}
    document = as_json("plan", graph(costs), "--stages", "auto")
    assert (document["stages"], document["devices"], document["period"]) == ([[0, 1]], [0], 4)


@pytest.mark.parametrize("size", [("--stages", "2"), ("--cores", "3")])
def test_a_plan_says_that_the_unsplit_model_exceeds_the_memory_limit(size, graph, as_text, as_json):
    limited = graph(), *size, "--memory", "30"
    text = "the unsplit model needs 40 B, over the memory limit of 30 B"
    assert as_json("plan", *limited)["note"] == text
    assert text in as_text("plan", *limited).splitlines()
    assert as_json("plan", graph(), *size)["note"] == ""


@pytest.fixture
def measured(monkeypatch, branches):
    """`plan` gets branches as any model, with profiles as if measured.

    An op takes 1 ms, a quarter of it on two cores, so that a plan takes them; a call takes 0.5 ms.
    """

    def profiles(model, along, batches):
        every = [(1.0 / len(d.numbers) ** 2,) * len(model.graph.ops) for d in along]
        noise = [tuple(0.1 * time for time in times) for times in every]
        rows = zip(map(str, along), every, noise, strict=True)
        return [Profile(*row, "tvm", disturbances=("load 3.1",)) for row in rows]

    def links(model, along):
        return [LinkCost(str(device), call_ms=0.5) for device in along]

    measured = Mock(side_effect=profiles)
    monkeypatch.setattr(device, "available", lambda: (0, 1, 2))
    monkeypatch.setattr(options, "load_model", lambda args: branches)
    monkeypatch.setattr(CompiledModel, "links", links)
    monkeypatch.setattr(api, "measured_profiles", measured)
    return measured


@pytest.mark.usefixtures("measured")
def test_a_relax_module_is_planned_as_the_model_that_it_is(as_json):
    Path("module.json").write_text('{"root_index":1,"nodes":[{"type":"None"}]}')
    assert as_json("plan", "module.json", "--stages", "2")["runtimes"] == ["tvm", "tvm"]


@pytest.mark.usefixtures("measured")
def test_a_model_is_planned_on_cores_by_its_costs_for_several_threads(as_text, as_json):
    document = as_json("plan", "net.onnx", "--cores", "16")
    shapes = zip(document["replicas"], document["threads"], strict=True)
    assert sum(replicas * threads for replicas, threads in shapes) <= 16
    assert 2 in document["threads"]
    assert set(document["runtimes"]) == {"tvm"}
    assert "load ms" in as_text("plan", "net.onnx", "--cores", "2")


def test_a_model_is_planned_on_its_devices_or_a_core_a_stage(measured, as_json):
    document = as_json("plan", "net.onnx", "--stages", "2")
    assert document["loads"] == [len(ops) + 0.5 for ops in document["stages"]]
    as_json("plan", "net.onnx", "--stages", "2", "--devices", "cores:2 cores:0")
    wide = as_json("plan", "net.onnx", "--stages", "2", "--devices", "cores:2 cores:0-1")
    assert (wide["replicas"], wide["threads"]) == ([1, 1], [1, 2])
    assert wide["runtimes"] == ["tvm", "tvm"]
    as_json("plan", "net.onnx", "--stages", "auto")
    as_json("plan", "net.onnx", "--stages", "auto", "--devices", "cores:1;cores:2")
    along = [" ".join(map(str, call.args[1])) for call in measured.call_args_list]
    devices = ["cores:0 cores:1", "cores:2 cores:0", "cores:2 cores:0,1"]
    devices += ["cores:0 cores:1 cores:2", "cores:1 cores:2"]
    assert along == devices


@pytest.mark.usefixtures("measured")
def test_the_interval_of_a_model_is_that_of_its_op_times(graph, as_text, as_json):
    words = "plan", "net.onnx", "--stages", "2", "--runtime", "tvm"
    document = as_json(*words)
    ops = max(map(len, document["stages"]))
    # Of the time of a call the noise is not known.
    assert document["period_interval"] == pytest.approx([0.9 * ops + 0.5, 1.1 * ops + 0.5])
    assert len(document["disturbances"]) == 2
    assert [p["device"] for p in document["profiles"]] == ["cores:0", "cores:1"]
    replicated = as_json("plan", "net.onnx", "--cores", "2", "--runtime", "tvm")
    low, high = replicated["period_interval"]
    assert low < replicated["period"] < high
    text = as_text(*words)
    assert f"period {ops + 0.5} ms ({0.9 * ops + 0.5:.3g} to {1.1 * ops + 0.5:.3g})" in text
    assert "profile of tvm on cores:0 was disturbed: load 3.1" in text
    assert "period_interval" not in as_json("plan", graph(), "--stages", "2")


@pytest.mark.usefixtures("measured")
def test_stages_on_one_core_add_their_loads_and_a_line_says_so(as_text, as_json):
    words = "plan", "net.onnx", "--stages", "2", "--devices", "cores:1 cores:1"
    document = as_json(*words)
    assert document["period"] == pytest.approx(sum(document["loads"]))
    assert document["lower_bound"] <= document["period"]
    assert "devices share cores" in as_text(*words)
    assert document["period_interval"][1] > 1.05 * document["period"]


@pytest.mark.integration
@pytest.mark.parametrize("size", [("--stages", "2"), ("--stages", "auto"), ("--cores", "2")])
def test_a_plan_of_a_model_is_written_compared_and_loads(size, save, as_json, tmp_path):
    out = tmp_path / "out"
    document = as_json("plan", save(nets.products()), *size, "-o", out)
    manifest = json.loads(Path(document["file"]).read_text())
    ops = [[op["name"] for op in stage["ops"]] for stage in manifest["stages"]]
    assert ops == document["stages"]
    assert [len(stage["replicas"]) for stage in manifest["stages"]] == document["replicas"]
    assert manifest["predicted"]["period_ms"] == document["period"]
    assert manifest["comparison"]["max_rel_error"] < 1e-4
    assert main(["verify", str(out)]) == 0


@pytest.mark.parametrize(
    ("tool", "flags"),
    [
        ("llama.cpp", "--device fast,slow -ts 3,1"),
        ("vllm", "VLLM_PP_LAYER_PARTITION=3,1 --pipeline-parallel-size 2"),
        ("exo", "fast: start_layer=0 end_layer=2 n_layers=4; slow: start_layer=3 end_layer=3 n"),
    ],
)
def test_a_plan_of_layers_is_an_option_of_another_program(graph, tool, flags, as_text, capsys):
    layers = [node(n, 1, 1) for n in range(4)]
    edges = [{"sourceId": n, "destId": n + 1, "cost": 0} for n in range(3)]
    devices = [{"name": "slow", "maxSize": 1}, {"name": "fast", "speed": 3}]
    graph_file = graph({**GRAPH, "nodes": layers, "edges": edges, "devices": devices})
    assert flags in as_text("plan", graph_file, "--stages", "2", "--as", tool)
    edges[2] = {"sourceId": 0, "destId": 3, "cost": 0}
    branched = graph({**GRAPH, "nodes": layers[::-1], "edges": edges, "devices": devices})
    assert main(["plan", branched, "--stages", "2", "--as", tool]) == 2
    assert "needs stages that are ranges of layers" in capsys.readouterr().err
    assert main(["plan", graph_file, "--cores", "2", "--as", tool]) == 2
    assert main(["plan", graph_file, "--cores", "2"]) == 2
    assert "2 unlike devices and --cores is for equal cores" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("times", "line"),
    [([[1, 9, 1]] * 4, "-ts 2,0,2"), ([[9, 1]] * 2 + [[1, 9]] * 2, "by name; name")],
)
def test_the_shares_of_devices_without_names_are_in_their_order(graph, capsys, times, line):
    layers = [node(n, 1, 1, deviceLatencies=each) for n, each in enumerate(times)]
    edges = [{"sourceId": n, "destId": n + 1, "cost": 0} for n in range(3)]
    file = graph({**GRAPH, "nodes": layers, "edges": edges})
    main(["plan", file, "--stages", "auto", "--assign", "--as", "llama.cpp"])
    assert line in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("bound", "text"), [(6.0, "at most 8.33 % above the best"), (0.0, "no bound above 0 is proven")]
)
def test_a_bound_that_proves_little_is_said_so(graph, monkeypatch, as_text, bound, text):
    best, unproven = planner.plan_split, {"lower_bound": bound, "optimal": False, "note": "late"}
    monkeypatch.setattr(planner, "plan_split", lambda *a, **k: replace(best(*a, **k), **unproven))
    title, note, *_ = as_text("plan", graph(), "--stages", "2").splitlines()
    assert (text in title, note) == (True, "late")
