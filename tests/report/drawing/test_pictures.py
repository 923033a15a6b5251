from __future__ import annotations

import struct
import subprocess
import sys
from itertools import pairwise
from xml.etree import ElementTree

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.cuts.stages import cuts_of, live
from autosplit.errors import MachineError, SplitError
from autosplit.graph import FusedGraph, Op, build
from autosplit.report.drawing.balance import stage_balance
from autosplit.report.drawing.canvas import label, lines
from autosplit.report.drawing.collapse import collapse
from autosplit.report.drawing.graph import split_graph
from autosplit.report.drawing.layout import arrange, crossings
from autosplit.report.drawing.paths import trace
from autosplit.report.drawing.rows import IO, SPACE, arrange_rows, fitted
from autosplit.report.drawing.timeline import timeline
from tests.report import graphs


def png_size(data: bytes) -> tuple[int, int]:
    assert data.startswith(b"\x89PNG")
    return struct.unpack(">II", data[16:24])


def texts(svg: bytes) -> list[str]:
    """All texts of a picture, in the order they are drawn."""
    elements = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    return [element.text or "" for element in elements]


@st.composite
def splits(draw: st.DrawFn) -> tuple[FusedGraph, list[list[int]]]:
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
    bounds = sorted(draw(st.sets(st.integers(1, count - 1), max_size=4))) if count > 1 else []
    ends = [0, *bounds, count]
    return graph, [list(range(a, b)) for a, b in pairwise(ends)]


@given(splits(), st.integers(1, 12), st.integers(2, 5))
def test_groups_hold_each_op_once_and_edges_run_forwards(
    case: tuple[FusedGraph, list[list[int]]], columns: int, rows: int
) -> None:
    graph, stages = case
    groups = collapse(graph, stages, columns, rows)
    place = {i: (g.stage, g.band, n) for n, g in enumerate(groups) for i in g.ops}
    assert sorted(i for g in groups for i in g.ops) == list(range(len(graph.ops)))
    assert all(set(g.ops) <= set(stages[g.stage]) for g in groups)
    for tensor in graph.tensors.values():
        for reader in tensor.consumers if tensor.producer is not None else ():
            before, after = place[tensor.producer], place[reader]
            assert before == after or before[:2] < after[:2]
    bands = [(g.stage, g.band) for g in groups]
    assert max(map(bands.count, bands)) <= rows
    assert len(set(bands)) <= max(len(stages), columns)


@given(splits())
def test_every_read_is_a_way_in_the_picture_and_a_live_tensor_crosses_its_cut_once(
    case: tuple[FusedGraph, list[list[int]]],
) -> None:
    graph, stages = case
    paths = trace(graph, stages, columns=8)
    ways = nx.DiGraph(paths.edges)
    box = {i: slot for column in paths.columns for slot in column for i in slot.ops}
    for tensor in graph.tensors.values():
        for reader in tensor.consumers if tensor.producer is not None else ():
            assert box[reader] == box[tensor.producer] or nx.has_path(
                ways, box[tensor.producer], box[reader]
            )
    for cut, column in zip(cuts_of(graph, stages), paths.cut_columns, strict=True):
        shown = [t for slot in paths.columns[column] for t in slot.tensors]
        assert sorted(shown) == sorted(live(graph, cut))
    assert all(b.column == a.column + 1 for a, b in paths.edges)


@given(st.lists(st.lists(st.floats(1, 50), max_size=6), min_size=1, max_size=6), st.data())
def test_boxes_of_a_column_never_overlap(sizes: list[list[float]], data: st.DataObject) -> None:
    columns = [[(c, r) for r in range(len(column))] for c, column in enumerate(sizes)]
    heights = {(c, r): h for c, column in enumerate(sizes) for r, h in enumerate(column)}
    pairs = [(a, b) for left, right in pairwise(columns) for a in left for b in right]
    y = arrange(
        columns,
        data.draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else [],
        heights,
        10,
    )
    for column in columns:
        ordered = sorted(column, key=y.__getitem__)
        for a, b in pairwise(ordered):
            assert y[b] - y[a] >= (heights[a] + heights[b]) / 2 + 10 - 1e-6


def test_two_crossed_edges_are_untangled() -> None:
    columns, after = [["a", "b"], ["c", "d"]], {"a": ["d"], "b": ["c"]}
    y = arrange(columns, [("a", "d"), ("b", "c")], dict.fromkeys("abcd", 10.0), 5)
    assert crossings(columns, after) == 1
    assert (y["a"] < y["b"]) == (y["d"] < y["c"])


@pytest.mark.parametrize(
    ("net", "count"), [("fire_net", 41), ("inception_net", 84), ("dense_net", 242)]
)
def test_graph_pictures_are_1400_wide_and_not_a_strip(net: str, count: int) -> None:
    graph = getattr(graphs, net)()
    width, height = png_size(split_graph(graph, graphs.prefix_stages(graph, 3)))
    assert (len(graph.ops), width) == (count, 2 * 1400)
    assert 0.12 < height / width < 1


def test_a_long_chain_keeps_the_ops_at_the_cut_apart() -> None:
    graph = graphs.dense_net()
    paths = trace(graph, graphs.prefix_stages(graph, 2), columns=9)
    cut = paths.cut_columns[0]
    assert all(
        len(slot.ops) <= 1 for column in (cut - 1, cut + 1) for slot in paths.columns[column]
    )
    assert max(len(column) for column in paths.columns) <= 6


@pytest.mark.parametrize("stages", [1, 5, 6, 8, 48])
def test_many_stages_go_on_below_and_the_picture_stays_1400_wide(stages: int) -> None:
    graph = graphs.dense_net()
    assert (
        png_size(split_graph(graph, graphs.prefix_stages(graph, stages), form="png"))[0] == 2 * 1400
    )


@given(splits(), st.integers(600, 1400))
def test_rows_hold_every_column_and_begin_with_the_cut_that_ended_the_row_before(
    case: tuple[FusedGraph, list[list[int]]], width: int
) -> None:
    graph, stages = case
    paths = fitted(graph, stages, width)
    rows, box, total = arrange_rows(paths, width)
    assert total == width
    assert sorted({c for row in rows for c in row.columns}) == list(range(len(paths.columns)))
    assert all(
        a.columns[-1] == b.columns[0] and b.columns[0] in paths.cut_columns
        for a, b in pairwise(rows)
    )
    assert all(b - a >= SPACE + IO / 2 for row in rows for a, b in pairwise(row.xs.values()))
    assert all(
        row.xs[c] + box / 2 <= width for row in rows for c in row.columns if paths.kind(c) == "op"
    )


def test_what_passes_the_end_of_a_row_is_told_by_name() -> None:
    ops = [Op(f"op{i}", "k", (), (f"t{i}",), (f"t{i + 1}",)) for i in range(7)]
    ops.append(Op("last", "k", (), ("t7", "late"), ("y",)))
    shapes = dict.fromkeys([*(f"t{i}" for i in range(8)), "late", "y"], ((1,), "float32", 4))
    graph = build("passing", ops, shapes, ["t0", "late"], ["t1", "y"])
    shown = texts(split_graph(graph, [[i] for i in range(8)], form="svg"))
    assert shown.count("input") == shown.count("output") == 2
    assert shown.count("late") == 3
    seams = [text for text in shown if "below" in text or "above" in text]
    assert seams == ["continued below", "cut 4, from above"]
    assert "1 op" in shown
    assert not [text for text in shown if text.startswith("1 ops")]


def test_tensors_keep_ways_of_their_own_after_a_cut() -> None:
    ops = [
        Op("a", "k", (), ("x",), ("t", "u")),
        Op("b", "k", (), ("x",), ("v",)),
        Op("c", "k", (), ("v",), ("w",)),
        Op("d", "k", (), ("t", "u", "w"), ("y",)),
    ]
    graph = build("skips", ops, dict.fromkeys("xtuvwy", ((1,), "float32", 4)), ["x"], ["y"])
    paths = trace(graph, [[0, 1], [2, 3]], columns=8)
    beside_c = next(column for column in paths.columns if any(slot.ops == (2,) for slot in column))
    assert len([slot for slot in beside_c if slot.kind == "through"]) == 2


def test_stages_that_are_no_split_are_refused() -> None:
    with pytest.raises(SplitError, match="conv5"):
        split_graph(graphs.chain(6), [[0, 1, 2], [3, 4]])


@pytest.mark.parametrize(
    "name", ["$x_{2", "$x_{2$", r"\frac{", "<script>", "日本語", "a\nb", "", "x" * 5000]
)
def test_hostile_names_are_drawn_as_text(name: str, recwarn: pytest.WarningsRecorder) -> None:
    ops = [Op(name, "k", (), ("x",), (name + "0",)), Op(name + "1", "k", (), (name + "0",), ("y",))]
    shapes = dict.fromkeys(("x", "y", name + "0"), ((1,), "float32", 4))
    graph = build(name, ops, shapes, ["x"], ["y"])
    svg = split_graph(graph, [[0], [1]], names=[name, name], title=name, form="svg")
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert ElementTree.fromstring(stage_balance([1.0], [name], title=name, form="svg")) is not None
    assert not [w for w in recwarn if "Glyph" in str(w.message)]


def test_balance_says_how_busy_each_stage_is() -> None:
    picture = stage_balance([9.0, 3.0], ["first", "second"], 12.0, title="Trial 3", form="svg")
    rows = ["first", "9 ms, 75% busy", "second", "3 ms, 25% busy"]
    assert texts(picture) == ["Trial 3", *rows, "even share 6 ms", "period 12 ms"]


@pytest.mark.parametrize("busy", [[], [0.0], [0.0, 5.0], [1e-9], [1e9] * 40])
def test_balance_is_drawn_for_any_times(busy: list[float]) -> None:
    assert png_size(stage_balance(busy, [], None))[0] == 2000


def test_timeline_says_how_busy_a_stage_was_between_its_first_and_last_item() -> None:
    events = [(0, 0, 0, 5), (0, 1, 5, 10), (1, 0, 5, 7), (1, 1, 10, 12)]
    shown = texts(timeline(events, ["a", "b"], form="svg"))
    assert [text for text in shown if text.endswith("busy")] == ["100% busy", "57% busy"]
    assert shown[1].startswith("2 items in 12 ms")


def test_a_long_timeline_shows_its_first_items_and_says_so() -> None:
    events = [(s, i, i + s, i + s + 1) for i in range(1000) for s in (0, 1)]
    assert texts(timeline(events, form="svg"))[1].startswith("the first 200 of 1000 items")


@pytest.mark.parametrize("events", [[], [(0, 0, 0.0, 0.0)], [(3, 7, 5.0, 4.0)]])
def test_timeline_is_drawn_for_odd_events(events: list[tuple[int, int, float, float]]) -> None:
    assert png_size(timeline(events))[0] == 2800


def test_without_matplotlib_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MachineError, match=r"pip install 'autosplit\[dashboard\]'"):
        stage_balance([1.0], ["a"])


def test_drawing_leaves_no_global_figure_behind() -> None:
    code = (
        "import sys; from autosplit.report.drawing.balance import stage_balance; "
        "stage_balance([1.0], ['a']); print('matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_text_of_an_svg_is_text_and_the_picture_small() -> None:
    graph = graphs.fire_net()
    picture = split_graph(graph, graphs.prefix_stages(graph, 3), form="svg")
    assert "squeezenet: 3 stages" in texts(picture)
    assert len(picture) < 60_000


def test_names_read_well() -> None:
    assert label("a" * 10, 5) == "aa…aa"
    assert lines("block1/conv2_relu", 12) == ["block1/", "conv2_relu"]
    assert lines("op5_concatenate", 13) == ["op5_", "concatenate"]


@given(st.text(), st.integers(2, 30))
def test_labels_keep_their_limit(text: str, limit: int) -> None:
    assert len(label(text, limit).replace(r"\$", "$")) <= limit
    assert all(len(line.replace(r"\$", "$")) <= limit for line in lines(text, limit, 3))
