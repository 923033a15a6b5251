import json

import pytest

from autosplit.errors import ConfigError, GraphError
from autosplit.hardware.profiling import graph_file
from autosplit.hardware.profiling.graph_file import read_graph, read_graph_file, save_graph
from autosplit.planner import plan
from tests.planner.graphs import random_dag


def test_what_is_saved_plans_alike_when_it_is_read(tmp_path):
    save_graph(file := tmp_path / "g.json", costs := random_dag(12, 0, transfer=0.0), 3)
    again = read_graph_file(file)
    assert plan(again.costs, 3).period == pytest.approx(plan(costs, 3).period)
    assert (again.costs.name, again.stages("auto"), again.stages(2)) == ("g", 3, 2)


def test_a_file_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    save_graph(file := tmp_path / "g.json", random_dag(12, 0), 3)
    monkeypatch.setattr(graph_file, "GRAPH_LIMIT", file.stat().st_size)
    read_graph(file)
    monkeypatch.setattr(graph_file, "GRAPH_LIMIT", file.stat().st_size - 1)
    with pytest.raises(GraphError, match=r"g\.json: is larger than \d+ bytes"):
        read_graph(file)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"g\.json: cannot be written"):
        save_graph(tmp_path / "no" / "g.json", random_dag(4, 0), 2)


@pytest.mark.parametrize("most", [None, 0, -1, True, "3", 2.5, []])
def test_a_file_without_a_number_of_stages_has_no_limit_for_auto(tmp_path, most):
    save_graph(file := tmp_path / "g.json", random_dag(4, 0), 3)
    document = json.loads(file.read_text())
    file.write_text(json.dumps(document | {"maxFPGAs": most}))
    with pytest.raises(GraphError, match=r"g\.json: maxFPGAs is .*; give a number of stages"):
        read_graph_file(file).stages("auto")


@pytest.mark.parametrize("most", [1, 2, 100])
def test_the_number_of_stages_is_the_one_that_was_saved(tmp_path, most):
    save_graph(file := tmp_path / "g.json", random_dag(4, 0), most)
    assert read_graph_file(file).stages("auto") == most


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"", "is not JSON"), (b"{", "is not JSON"), (b"\xff\xfe", "is not JSON"),
     (b"[" * 100_000, "is not JSON"),
     (b"[]", r"g\.json: "), (b"{}", r"g\.json: ")],
)  # fmt: skip
def test_a_file_that_is_no_graph_is_named(tmp_path, content, problem):
    (file := tmp_path / "g.json").write_bytes(content)
    with pytest.raises(GraphError, match=problem):
        read_graph(file)


def test_a_file_that_is_not_there_or_a_folder_is_named(tmp_path):
    for file in (tmp_path / "none.json", tmp_path):
        with pytest.raises(GraphError, match=r"cannot be read .*; name a graph file"):
            read_graph(file)


def test_an_error_in_a_graph_is_told_with_its_file(tmp_path):
    save_graph(file := tmp_path / "g.json", random_dag(4, 0), 3)
    document = json.loads(file.read_text())
    document["nodes"][0]["cpuLatency"] = document["nodes"][0]["fpgaLatency"] = -1
    file.write_text(json.dumps(document))
    with pytest.raises(GraphError, match=r"^.*g\.json: "):
        read_graph(file)


@pytest.mark.parametrize(("stages", "says"), [(3, False), (4, True)])
def test_more_stages_than_devices_are_said(tmp_path, stages, says):
    node = {"id": 0, "supportedOnFpga": 1, "fpgaLatency": 1, "cpuLatency": 1, "size": 0}
    document = {"maxFPGAs": 3, "maxSizePerFPGA": 1, "nodes": [node], "edges": []}
    (tmp_path / "g.json").write_text(json.dumps(document))
    note = read_graph_file(tmp_path / "g.json").device_note(stages)
    assert note == ("4 stages are more than the 3 devices of the file (maxFPGAs)" if says else "")
