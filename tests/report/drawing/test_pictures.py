from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.cuts.stages import cuts_of, live
from autosplit.errors import SplitError
from autosplit.graph import FusedGraph, Op, State, build
from autosplit.report.drawing.balance import stage_balance
from autosplit.report.drawing.canvas import Canvas, label, lines, ticks
from autosplit.report.drawing.collapse import collapse
from autosplit.report.drawing.graph import SplitGraph
from autosplit.report.drawing.layout import arrange
from autosplit.report.drawing.paths import trace
from tests.report import graphs


def size(canvas: Canvas) -> tuple[float, float]:
    """Width and height of a picture that is well-formed."""
    root = ElementTree.fromstring(canvas.render())
    return float(root.attrib["width"]), float(root.attrib["height"])


def texts(canvas: Canvas) -> list[str]:
    """All texts of a picture, in the order they are drawn."""
    elements = ElementTree.fromstring(canvas.render()).iter("{http://www.w3.org/2000/svg}text")
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
    paths = trace(graph, stages, levels=8)
    ways = nx.DiGraph(paths.edges)
    box = {i: slot for column in paths.levels for slot in column for i in slot.ops}
    for tensor in graph.tensors.values():
        for reader in tensor.consumers if tensor.producer is not None else ():
            assert box[reader] == box[tensor.producer] or nx.has_path(
                ways, box[tensor.producer], box[reader]
            )
    for cut, column in zip(cuts_of(graph, stages), paths.cut_levels, strict=True):
        shown = [t for slot in paths.levels[column] for t in slot.tensors]
        assert sorted(shown) == sorted(live(graph, cut))
    assert all(b.level == a.level + 1 for a, b in paths.edges)


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
    columns = [["a", "b"], ["c", "d"]]
    y = arrange(columns, [("a", "d"), ("b", "c")], dict.fromkeys("abcd", 10.0), 5)
    assert (y["a"] < y["b"]) == (y["d"] < y["c"])


@pytest.mark.parametrize("net", ["fire_net", "inception_net", "dense_net"])
@pytest.mark.parametrize("stages", [1, 3, 8])
def test_graph_pictures_can_be_read_on_a_phone(net: str, stages: int) -> None:
    graph = getattr(graphs, net)()
    width, height = size(SplitGraph(graph, graphs.prefix_stages(graph, stages)).draw())
    assert 390 < width < 900
    assert height < 100 * (14 + 2 * stages)


def test_a_long_chain_keeps_the_ops_at_the_cut_apart() -> None:
    graph = graphs.dense_net()
    paths = trace(graph, graphs.prefix_stages(graph, 2), levels=9)
    cut = paths.cut_levels[0]
    assert all(len(slot.ops) <= 1 for column in (cut - 1, cut + 1) for slot in paths.levels[column])
    assert max(len(column) for column in paths.levels) <= 6


def test_a_picture_of_many_stages_has_a_cut_between_each() -> None:
    graph = graphs.dense_net()
    drawn = texts(SplitGraph(graph, graphs.prefix_stages(graph, 48)).draw())
    assert len([text for text in drawn if text.startswith("cut ")]) == 47


def test_tensors_keep_ways_of_their_own_after_a_cut() -> None:
    ops = [
        Op("a", "k", (), ("x",), ("t", "u")),
        Op("b", "k", (), ("x",), ("v",)),
        Op("c", "k", (), ("v",), ("w",)),
        Op("d", "k", (), ("t", "u", "w"), ("y",)),
    ]
    graph = build("skips", ops, dict.fromkeys("xtuvwy", ((1,), "float32", 4)), ["x"], ["y"])
    paths = trace(graph, [[0, 1], [2, 3]], levels=8)
    beside_c = next(column for column in paths.levels if any(slot.ops == (2,) for slot in column))
    assert len([slot for slot in beside_c if slot.kind == "through"]) == 2


def test_states_are_marked_where_they_enter_and_leave() -> None:
    shapes = dict.fromkeys(["x", "h", "y"], ((2,), "float32", 8))
    graph = build("net", [Op("add", "add", (), ("x", "h"), ("y",))], shapes, ["x", "h"], ["y"])
    assert "state" not in texts(SplitGraph(graph, [[0]]).draw())
    graph = replace(graph, states=(State("h", "y", "y"),))
    drawn = texts(SplitGraph(graph, [[0]]).draw())
    assert [drawn[n + 1] for n, text in enumerate(drawn) if text == "state"] == ["h", "y"]


def test_stages_that_are_no_split_are_refused() -> None:
    with pytest.raises(SplitError, match="conv5"):
        SplitGraph(graphs.chain(6), [[0, 1, 2], [3, 4]]).draw()


@pytest.mark.parametrize(
    "name", ["$x_{2", "$x_{2$", r"\frac{", "<script>", "日本語", "a\nb", "", "x" * 5000]
)
def test_hostile_names_are_drawn_as_text(name: str) -> None:
    ops = [Op(name, "k", (), ("x",), (name + "0",)), Op(name + "1", "k", (), (name + "0",), ("y",))]
    shapes = dict.fromkeys(("x", "y", name + "0"), ((1,), "float32", 4))
    graph = build(name, ops, shapes, ["x"], ["y"])
    pictures = [
        SplitGraph(graph, [[0], [1]], names=[name, name]).draw(name),
        stage_balance([1.0], [name], None),
    ]
    for picture in pictures:
        assert "script" not in {e.tag for e in ElementTree.fromstring(picture.inline(name)).iter()}


def test_balance_says_how_busy_each_stage_is() -> None:
    picture = stage_balance([9.0, 3.0], ["first", "second"], 12.0)
    rows = ["first", "9 ms, 75% busy", "second", "3 ms, 25% busy"]
    assert texts(picture) == [*rows, "period 12 ms"]


@pytest.mark.parametrize("busy", [[], [0.0], [0.0, 5.0], [1e-9], [1e9] * 40])
def test_balance_is_drawn_for_any_times(busy: list[float]) -> None:
    assert size(stage_balance(busy, [], None))[0] == 560


def test_the_text_of_a_picture_is_text_and_the_picture_small() -> None:
    graph = graphs.fire_net()
    picture = SplitGraph(graph, graphs.prefix_stages(graph, 3)).draw()
    assert "squeezenet: 3 stages" in texts(picture)
    assert len(picture.render()) < 30_000


def test_a_box_of_several_ops_opens_to_a_box_for_each() -> None:
    graph = graphs.inception_net()
    view = SplitGraph(graph, graphs.prefix_stages(graph, 2), op_ms=[0.5] * 84, link="box")
    parts = list(view.parts())
    svg = ElementTree.fromstring(view.draw().render())
    links = [e.attrib["href"] for e in svg.iter("{http://www.w3.org/2000/svg}a")]
    assert sorted(links) == sorted(f"#{link}" for link, _, _ in parts)
    shown = bits(view.draw())
    opened = [bits(picture) for _, _, picture in parts]
    assert all(box.bit_count() == 1 for part in opened for box in part)
    assert sorted(map(sum, opened)) == sorted(box for box in shown if box.bit_count() > 1)
    assert sum(shown) == 2**84 - 1


def bits(canvas: Canvas) -> list[int]:
    """The ops of each box of a picture, as bitsets."""
    boxes = ElementTree.fromstring(canvas.render()).iter()
    return [int(e.attrib["data-ops"], 16) for e in boxes if int(e.get("data-ops", "0"), 16)]


def test_a_box_says_its_time_shapes_sources_and_stage() -> None:
    picture = SplitGraph(graphs.chain(2), [[0], [1]], ["cores:0", "cores:1"], [1.0, 2.5]).draw()
    titles = ElementTree.fromstring(picture.render()).iter("{http://www.w3.org/2000/svg}title")
    assert (
        "conv1, 2.5 ms\nstage 1, cores:1\nreads conv0:0: 500 float32, 2 kB\n"
        "makes conv1:0: 250 float32, 1 kB\nsource nodes: conv1"
    ) in [title.text for title in titles]


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.integers(2, 12))
def test_ticks_are_few_and_within(low: float, span: float, most: int) -> None:
    values = ticks(low, low + span, most)
    assert len(values) <= most + 1
    assert all(low - span * 1e-3 <= v <= low + span * 1.001 for v in values)


def test_names_read_well() -> None:
    assert label("a" * 10, 5) == "aa…aa"
    assert lines("block1/conv2_relu", 12) == ["block1/", "conv2_relu"]
    assert lines("op5_concatenate", 13) == ["op5_", "concatenate"]


@given(st.text(), st.integers(2, 30))
def test_labels_keep_their_limit(text: str, limit: int) -> None:
    assert len(label(text, limit)) <= limit
    assert all(len(line) <= limit for line in lines(text, limit, 3))
