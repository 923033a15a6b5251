"""The connections of splits of small graphs, each of which shows one rule."""

import pytest

from autosplit.hardware.execution.wiring import part
from tests.hardware.fakes import graph

DIAMOND = graph(
    [("a", ["x"]), ("b", ["a"]), ("c", ["a"]), ("d", ["b", "c", "x"])], ["x"], ["d", "b"]
)


def names(ports):
    return [p.name for p in ports]


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
