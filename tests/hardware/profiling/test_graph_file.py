import copy
import errno
import json
import math
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given

from autosplit.errors import GraphError, MachineError
from autosplit.hardware.profiling import graph_file
from autosplit.hardware.profiling.graph_file import from_document, read_graph_file, save_graph
from autosplit.planner import Question, partition
from tests.deploy.exports import put
from tests.planner.graphs import chain, on_unlike_devices, random_dag
from tests.planner.models import models


def plan(costs, stages):
    return partition(costs, Question.of_split(stages))


def test_a_file_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    save_graph(file := tmp_path / "g.json", graph_file.to_document(random_dag(12, 0), 3))
    monkeypatch.setattr(graph_file, "GRAPH_LIMIT", file.stat().st_size)
    read_graph_file(file)
    monkeypatch.setattr(graph_file, "GRAPH_LIMIT", file.stat().st_size - 1)
    with pytest.raises(GraphError, match=r"g\.json: is larger than \d+ bytes"):
        read_graph_file(file)


@pytest.mark.parametrize("most", [None, 0, -1, True, "3", 2.5, []])
def test_a_file_without_a_number_of_stages_has_no_limit_for_auto(tmp_path, most):
    save_graph(file := tmp_path / "g.json", graph_file.to_document(random_dag(4, 0), 3))
    document = json.loads(file.read_text())
    file.write_text(json.dumps(document | {"maxFPGAs": most}))
    with pytest.raises(GraphError, match=r"g\.json: maxFPGAs is .*; give a number of stages"):
        read_graph_file(file).stages("auto")


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"", "is not JSON"), (b"{", "is not JSON"), (b"\xff\xfe", "is not JSON"),
     (b"[" * 100_000, "is not JSON"),
     *((text, r"^.*g\.json: ") for text in (b"null", b"3", b"[]", b'"graph"', b"{}"))],
)  # fmt: skip
def test_a_file_that_is_no_graph_is_named(tmp_path, content, problem):
    (file := tmp_path / "g.json").write_bytes(content)
    with pytest.raises(GraphError, match=problem):
        read_graph_file(file)


def test_what_is_not_there_a_folder_or_a_pipe_is_named(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    for file in (tmp_path / "none.json", tmp_path, tmp_path / "pipe.json"):
        with pytest.raises(GraphError, match=r"cannot be read .*; name a graph file"):
            read_graph_file(file)


def test_a_disk_that_fills_up_keeps_the_old_file(tmp_path, monkeypatch):
    def half(path, text, **_):
        path.write_bytes(text[:2].encode())
        raise OSError(errno.ENOSPC, "No space left on device")

    (file := tmp_path / "g.json").write_bytes(b"mine")
    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(MachineError, match="No space left"):
        save_graph(file, {"nodes": []})
    assert file.read_bytes() == b"mine"


GOOD = {
    "maxFPGAs": 2,
    "maxCPUs": 0,
    "maxSizePerFPGA": 100,
    "nodes": [
        {"id": 5, "supportedOnFpga": True, "cpuLatency": 1, "fpgaLatency": 2.0,
         "isBackwardNode": False, "size": 1},
        {"id": "b", "supportedOnFpga": 1, "fpgaLatency": 3, "size": 2, "colorClass": 1},
        {"id": 1, "supportedOnFpga": 1, "fpgaLatency": 4, "size": 3, "colorClass": None},
    ],
    "edges": [
        {"sourceId": 1, "destId": 5, "cost": 0.5, "size": 7},
        {"sourceId": 1, "destId": "b", "cost": 0.5},
    ],
}  # fmt: skip


def changed(place, value):
    """GOOD with the entry at a place replaced, or left out where value is ..."""
    return put(copy.deepcopy(GOOD), place, value)


def test_nodes_may_stand_in_any_order_and_keep_their_ids():
    costs = from_document(GOOD)
    assert costs.ids == (1, 5, "b")
    assert costs.rows[0].times == (4.0, 2.0, 3.0)
    best = plan(costs, 2)
    assert [[costs.ids[i] for i in ops] for ops in best.split] == [[1], [5, "b"]]
    assert best.loads == (4.5, 5.5)
    assert best.bytes_moved == 7
    assert best.memory == (3.0, 3.0)


@pytest.mark.parametrize("least", [1e-320, 1e-300, 1e199])
def test_times_may_be_in_any_unit(least):
    assert plan(from_document(changed("nodes.0.fpgaLatency", least)), 2).lower_bound >= 4.5
    document = copy.deepcopy(GOOD) | {"edges": []}
    for node in document["nodes"]:
        node["fpgaLatency"] = least
    assert plan(from_document(document), 3).period == least


MALFORMED = [
    ("nodes.0.fpgaLatency", "node 5 has fpgaLatency {}", -1, math.nan, math.inf, True, "2"),
    ("nodes.0.fpgaLatency", "node 5 has fpgaLatency 1e+308; it should be less", 1e308),
    ("nodes.0.fpgaLatency", "fpgaLatency", 10**400),
    ("nodes.0.fpgaLatency", "node 5 has no fpgaLatency", None, ...),
    ("nodes.0.cpuLatency", "node 5 has cpuLatency {}", -1),
    ("nodes.1.size", "node 'b' has size {}", -2, 1e308),
    ("nodes.1.size", "no size", ...),
    ("nodes.1.supportedOnFpga", "supportedOnFpga {}", "yes"),
    ("nodes.1.colorClass", "colorClass", [1]),
    ("nodes.1.id", "id 5 appears twice", 5),
    ("nodes.1.id", "id", True, [1]),
    ("nodes.1.id", "no id", ...),
    ("nodes.1.deviceLatencies", "node 'b' has deviceLatencies -2", [1, -2]),
    ("nodes.1", "node 1 is {}", 3),
    ("nodes", "nodes {}", {}, []),
    ("nodes", "no nodes", ...),
    ("edges", "no edges", ...),
    ("edges", "edges {}", 4),
    ("edges.0", "edge 0", None),
    ("edges.0.sourceId", "sourceId {}", 9),
    ("edges.0.destId", "destId {}", "x"),
    ("edges.0.destId", "reads its own output", 1),
    ("edges.0.cost", "different costs", 0.25),
    ("edges.0.cost", "cost {}", -0.5, math.inf),
    ("edges.0.cost", "no cost", ...),
    ("edges.0.size", "size {}", -7, math.inf),
    ("edges.1", "cycle", {"sourceId": 5, "destId": 1, "cost": 0}),
    ("maxSizePerFPGA", "maxSizePerFPGA {}", -1),
    ("maxSizePerFPGA", "no maxSizePerFPGA", ...),
    ("overhead", "overhead {}", math.nan),
    ("devices", "has devices {}", []),
    ("devices", "device 'a' has speed 0", [{"name": "a", "speed": 0}]),
    ("devices", "device 0 has no name", [{"speed": 1}]),
    ("devices", "device 'a' has maxSize -1", [{"name": "a", "maxSize": -1}]),
]


@pytest.mark.parametrize(
    ("place", "named", "value"), [(place, named, v) for place, named, *of in MALFORMED for v in of]
)
def test_what_is_malformed_is_named(place, named, value):
    with pytest.raises(GraphError) as error:
        from_document(changed(place, value))
    assert named.format(repr(value)) in str(error.value)


def unlike(**fields):
    """GOOD on two devices, of which the second is twice as fast."""
    devices = [{"name": "board"}, {"name": "fast", "speed": 2.0, "maxSize": 4}]
    return copy.deepcopy(GOOD) | {"devices": devices} | fields


def test_a_device_has_its_speed_its_own_times_and_its_memory():
    document = unlike()
    document["nodes"][1]["deviceLatencies"] = [7, None]
    costs = from_document(document)
    assert [row.times for row in costs.rows] == [(4.0, 2.0, 7.0), (2.0, 1.0, math.inf)]
    assert [kind.memory for kind in costs.kinds] == [100.0, 4.0]
    document["nodes"][0]["deviceLatencies"] = [1.0, 2.0, 3.0]
    with pytest.raises(GraphError, match="node 5 has 3 deviceLatencies for 2 devices; give one"):
        from_document(document)


def test_more_stages_than_devices_are_said(tmp_path):
    text = "3 stages are more than the 2 devices of the file (maxFPGAs)"
    # Where it has devices of its own, these count.
    for document in (GOOD, unlike(maxFPGAs=1)):
        (tmp_path / "g.json").write_text(json.dumps(document))
        file = read_graph_file(tmp_path / "g.json")
        assert [file.device_note(2), file.device_note(3), file.stages("auto")] == ["", text, 2]


def test_devices_that_differ_are_saved_with_their_times_and_memory(tmp_path):
    model = on_unlike_devices(chain(1.0, 3.0, memory=9.0), (1.0, math.inf), (3.0, 4.0), (3.0, 4.0))
    names = ("cores:0", "rpc:a:1", "rpc:a:1")
    kinds = [replace(k, name=names[n]) for n, k in enumerate(model.kinds[:2])]
    rows = [replace(r, row=replace(r.row, kind=names[n])) for n, r in enumerate(model.rows[:2])]
    model = replace(model, kinds=tuple(kinds), rows=tuple(rows))
    save_graph(tmp_path / "g.json", graph_file.to_document(model, 3, names))
    again = read_graph_file(tmp_path / "g.json")
    assert again.names == names
    assert [row.times for row in again.costs.rows] == [(1.0, math.inf), (3.0, 4.0), (3.0, 4.0)]
    assert {kind.memory for kind in again.costs.kinds} == {9.0}
    assert again.costs.alike == {"0": "0", "1": "1", "2": "1"}


@given(models(kinds=1, threads=(1, 2)))
def test_a_saved_graph_reads_back_with_the_same_groups_and_times(model):
    again = from_document(json.loads(json.dumps(graph_file.to_document(model), allow_nan=False)))
    place = [again.index[name] for name in model.names]
    single = [row.times for row in model.rows if row.row.threads == 1]
    assert [again.rows[0].times[i] for i in place] == list(map(min, zip(*single, strict=True)))
    assert [again.sizes[i] for i in place] == list(model.sizes)

    def groups(costs):
        return sorted(
            sorted(costs.names[i] for i in range(len(costs.names)) if group >> i & 1)
            for group in costs.contraction.groups
        )

    assert groups(again) == groups(model)
