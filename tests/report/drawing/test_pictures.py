import json
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.errors import ConfigError
from autosplit.graph import Op, State, build
from autosplit.report.drawing.canvas import label, ticks
from autosplit.report.drawing.graph import SplitGraph
from autosplit.report.drawing.lanes import lanes
from autosplit.report.drawing.timeline import timeline
from tests.report import graphs

SVG = "{http://www.w3.org/2000/svg}"


def texts(canvas, tag="text"):
    """All texts of a picture that is well-formed, in the order they are drawn."""
    return [e.text or "" for e in ElementTree.fromstring(canvas.render()).iter(SVG + tag)]


@st.composite
def splits(draw):
    """A graph with skips, branches and unread results, and a split of it along its order."""
    count = draw(st.integers(1, 24))
    ops = []
    for i in range(count):
        reads = draw(st.sets(st.integers(-1, i - 1), max_size=3))
        inputs = tuple("x" if r < 0 else f"t{r}" for r in sorted(reads))
        ops.append(Op(f"op{i}", "k", (), inputs, (f"t{i}",)))
    names = ["x", *(f"t{i}" for i in range(count))]
    outputs = draw(st.sets(st.sampled_from(names[1:]), max_size=3)) | {names[-1]}
    graph = build("random", ops, dict.fromkeys(names, ((1,), "float32", 4)), ["x"], sorted(outputs))
    bounds = sorted(draw(st.sets(st.integers(1, count - 1)))) if count > 1 else []
    return graph, [list(range(a, b)) for a, b in pairwise([0, *bounds, count])]


@given(splits())
def test_no_two_tensors_share_a_lane_and_no_op_stands_on_the_lane_of_another(case):
    graph, stages = case
    rows = [((), graph.inputs), *((op.inputs, op.outputs) for op in graph.ops), (graph.outputs, ())]
    nodes, ways = lanes(rows)
    read = {tensor for reads, _ in rows for tensor in reads}
    assert [way.tensor for way in ways] == [tensor for tensor in graph.tensors if tensor in read]
    for row, (reads, _) in enumerate(rows):
        passing = [w for w in ways if w.start < row < w.readers[-1]]
        assert len({way.lane for way in passing}) == len(passing)
        assert nodes[row] not in {way.lane for way in passing}
        assert {w.tensor for w in ways if row in w.readers} == set(reads)
    # Every op is a row with its time.
    drawn = texts(SplitGraph(graph, stages, op_ms=[0.5] * len(graph.ops)).draw())
    assert drawn.count("0.5 ms") == len(graph.ops)
    assert sum(text.startswith("cut ") for text in drawn) == len(stages) - 1


def test_states_are_marked_where_they_enter_and_leave():
    shapes = dict.fromkeys(["x", "h", "y"], ((2,), "float32", 8))
    graph = build("net", [Op("add", "add", (), ("x", "h"), ("y",))], shapes, ["x", "h"], ["y"])
    assert "state" not in "".join(texts(SplitGraph(graph, [[0]]).draw()))
    graph = replace(graph, states=(State("h", "y", "y"),))
    marked = [text for text in texts(SplitGraph(graph, [[0]]).draw()) if "state of" in text]
    assert marked == ["input h (state of a stream)", "output y (state of a stream)"]


def test_an_op_says_its_time_shapes_sources_and_stage():
    graph = graphs.chain(2)
    ops = [graph.ops[0], replace(graph.ops[1], name="op1_fused_conv2d")]
    graph = replace(graph, ops=tuple(ops))
    picture = SplitGraph(graph, [[0], [1]], ["cores:0", "cores:1"], [1.0, 2.5]).draw()
    title = """conv1 (op1), 2.5 ms\nstage 1, cores:1\nreads conv0:0: 500 float32, 2 kB
makes conv1:0: 250 float32, 1 kB\nkernel: conv1\nsource nodes: conv1"""
    assert title in texts(picture, "title")
    assert "conv1 (op1)" in texts(picture)


def event(stage, item, start, **more):
    place = {"pid": stage, "tid": 0, "ts": start, "dur": 800.0, "args": {"item": item}}
    return {"ph": "X", "name": f"item {item}", "cat": "item", **place, **more}


def test_a_timeline_has_a_dozen_items_of_each_stage(tmp_path):
    events = [event(stage, i, 1000.0 * (i + stage)) for i in range(40) for stage in (0, 1)]
    name = {"ph": "M", "name": "thread_name", "pid": 1, "args": {"name": "replica 0 on cores:1"}}
    (tmp_path / "run.json").write_text(json.dumps({"traceEvents": [name, *events]}))
    picture = timeline(tmp_path / "run.json")
    assert "stage 1, replica 0 on cores:1" in texts(picture)
    titles = texts(picture, "title")
    assert "stage 0, item 14: 0.8 ms" in titles
    assert len(titles) == 24


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[1]", "\xff", '{"traceEvents": []}', '{"traceEvents": [{"ph": "X"}]}', "[" * 9999,
     *(json.dumps({"traceEvents": [event(0, 0, start)]}) for start in (-1.0, 1e17))],
)  # fmt: skip
def test_what_is_no_trace_is_refused_in_a_line(text, tmp_path):
    (tmp_path / "run.json").write_text(text, encoding="latin-1")
    with pytest.raises(ConfigError, match=r"run\.json' .*; give a"):
        timeline(tmp_path / "run.json")


@given(st.floats(1e-6, 1e6), st.integers(2, 12))
def test_ticks_are_few_and_within(high, most):
    values = ticks(high, most)
    assert len(values) <= most + 1
    assert all(0 <= v <= high * 1.001 for v in values)


@given(st.text(), st.integers(2, 30))
def test_labels_keep_their_limit_and_more_of_their_end(text, limit):
    assert len(label(text, limit)) <= limit
    assert label("a" * 10, 5) == "aa…aa"
