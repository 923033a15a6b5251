"""The connections of splits of small graphs, each of which shows one rule."""

import pytest

from autosplit.hardware.execution.wiring import Connection, Port, part, wire
from tests.hardware.fakes import graph

DIAMOND = graph(
    [("a", ["x"]), ("b", ["a"]), ("c", ["a"]), ("d", ["b", "c", "x"])], ["x"], ["d", "b"]
)


def names(ports):
    return [p.name for p in ports]


def test_outputs_of_the_model_have_their_own_names():
    wiring = wire(
        DIAMOND, [[0, 1], [2, 3]], [("first", "b"), ("second", "d"), ("again", "b"), ("same", "x")]
    )
    assert names(wiring.outputs) == ["first", "second", "again", "same"]
    assert wiring.outputs[0] == Port("first", (2,), "float64")
    assert {c.tensor: c.outputs for c in wiring.connections if c.outputs} == {
        "x": ("same",), "b": ("first", "again"), "d": ("second",),
    }  # fmt: skip


def test_a_stage_outputs_what_other_stages_read_in_the_order_of_its_ops():
    wiring = wire(DIAMOND, [[0, 1], [2, 3]], [("d", "d"), ("b", "b")])
    assert [names(s.inputs) for s in wiring.stages] == [["x"], ["a", "b", "x"]]
    assert [names(s.outputs) for s in wiring.stages] == [["a", "b"], ["d"]]
    assert wiring.connections == (
        Connection("x", 16, "x", (0, 1), ()),
        Connection("a", 16, (0, 0), (1,), ()),
        Connection("b", 16, (0, 1), (1,), ("b",)),
        Connection("d", 16, (1, 0), (), ("d",)),
    )


def test_a_tensor_that_nobody_reads_has_no_connection():
    unread = graph([("a", ["x"]), ("idle", ["a"]), ("c", ["a"])], ["x", "unused"], ["c"])
    wiring = wire(unread, [[0, 1], [2]], [("c", "c")])
    assert names(wiring.stages[0].outputs) == ["a"]
    assert [c.tensor for c in wiring.connections] == ["x", "a", "c"]
    assert names(wiring.inputs) == ["x", "unused"]


@pytest.mark.parametrize(
    ("ops", "inputs", "outputs"),
    [
        ([0], ["x"], ["a"]),
        ([1, 2], ["a"], ["b", "c"]),
        ([3], ["b", "c", "x"], ["d"]),
        ([0, 1, 2, 3], ["x"], ["b", "d"]),
    ],
)
def test_a_part_has_connections_to_the_caller_alone(ops, inputs, outputs):
    wiring = part(DIAMOND, ops, [("last", "d"), ("b", "b")])
    assert (names(wiring.inputs), names(wiring.outputs)) == (inputs, outputs)
    assert wiring.inputs == wiring.stages[0].inputs
    assert {c.bytes for c in wiring.connections} == {16}
    read = [(c.tensor, c.source, c.stages, c.outputs) for c in wiring.connections]
    assert read[: len(inputs)] == [(n, n, (0,), ()) for n in inputs]
    assert read[len(inputs) :] == [(n, (0, j), (), (n,)) for j, n in enumerate(outputs)]


def test_a_part_whose_results_nobody_reads_outputs_them_all():
    unread = graph([("a", ["x"]), ("idle", ["a"]), ("idle2", ["x"])], ["x"], ["a"])
    assert names(part(unread, [1, 2], [("a", "a")]).outputs) == ["idle", "idle2"]
