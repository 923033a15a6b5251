import pytest

from autosplit.errors import ConfigError, GraphError
from autosplit.hardware import graph_file
from autosplit.hardware.graph_file import graph_and_stages, read_graph, save_graph
from autosplit.planner import plan
from tests.planner.graphs import random_dag


def test_what_is_saved_plans_alike_when_it_is_read(tmp_path):
    save_graph(file := tmp_path / "g.json", costs := random_dag(12, 0, transfer=0.0), 3)
    again, most = graph_and_stages(file)
    assert plan(again, 3).period == pytest.approx(plan(costs, 3).period)
    assert (again.name, most) == ("g", 3)


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
