"""Structures that splitters got wrong, compared with onnxruntime on the original net."""

from __future__ import annotations

import pytest

from autosplit import api, cuts
from autosplit.errors import ModelError
from tests import nets
from tests.build import value

pytest.importorskip("onnxruntime")


@pytest.fixture
def split(save):
    """Write a net, load it, split it."""

    def make(proto, *after):
        return api.load_model(save(proto)).split(after)

    return make


def test_a_sum_with_two_readers_is_one_connection_and_one_input(split):
    parts = split(nets.preactivation(), ["add0"])
    wiring = parts.model.wiring(parts.stages)
    assert nets.live(parts) == ("add0",)
    assert len(parts.model.graph.tensors["add0"].consumers) == 2
    assert [(c.source, c.stages) for c in wiring.connections if c.tensor == "add0"] == [
        ((0, 0), (1,))
    ]
    assert [p.name for p in wiring.stages[1].inputs] == ["add0"]


def test_two_readers_on_two_stages_are_one_connection(split):
    parts = split(nets.preactivation(), ["add0"], ["r1"])
    of_sum = [c for c in parts.model.wiring(parts.stages).connections if c.tensor == "add0"]
    assert [(c.source, c.stages) for c in of_sum] == [((0, 0), (1, 2))]


def test_a_cut_inside_a_residual_block_connects_both_live_tensors(split):
    parts = split(nets.residual(), ["relu1a"])
    wiring = parts.model.wiring(parts.stages)
    assert set(nets.live(parts)) == {"out0", "relu1a"}
    assert {c.tensor: c.stages for c in wiring.connections if c.source != "x"} == {
        "out0": (1,),
        "relu1a": (1,),
        "y": (),
    }
    nets.judge(parts.model, parts)


def test_a_cut_after_several_blocks_takes_them_all_along(split):
    parts = split(nets.residual(4), ["out2"])
    assert {"out0", "out1", "out2"} <= nets.sources(parts, 0)
    assert nets.live(parts) == ("out2",)


def test_branches_cut_at_different_depths(split):
    parts = split(nets.parallel(), ["b0", "d1"])
    assert set(nets.live(parts)) == {"stem", "b0", "d1"}


def test_one_branch_wholly_before_and_another_wholly_after(split):
    parts = split(nets.parallel(), ["d2"], ["b1"])
    assert {"d0", "d1", "d2"} <= nets.sources(parts, 0)
    assert nets.sources(parts, 1) == {"b0", "b1"}
    assert {"a0", "y"} <= nets.sources(parts, 2)


def test_tensors_out_of_tuples_cross_cuts(split):
    model = split(nets.tuples()).model
    for i, op in enumerate(model.graph.ops):
        if cuts.closure(model.graph, [i]) != cuts.full(model.graph):
            nets.judge(model, model.split([[op.name]]), items=2)


def test_only_the_items_that_are_read_later_cross(split):
    parts = split(nets.tuples(), ["k"])
    assert {"p", "r", "q", "k"} == set(nets.live(parts))
    nets.judge(parts.model, parts)


def test_the_live_tensor_is_not_the_last_ops_output(split):
    parts = split(nets.boundaries(), ["skip", "early"])
    assert nets.live(parts) == ("skip",)
    assert parts.model.graph.ops[parts.stages[0][-1]].outputs == ("early",)
    nets.judge(parts.model, parts)


def test_inputs_outputs_and_weights_go_where_they_are_read(split):
    parts = split(nets.boundaries(), ["skip", "early", "both"], ["far"], ["end"])
    wiring = parts.model.wiring(parts.stages)
    by_tensor = {c.tensor: c for c in wiring.connections}
    assert by_tensor["x"].stages == (0, 2, 3)  # several stages read it
    assert by_tensor["late"].stages == (3,)  # only a late one does
    assert by_tensor["early"].outputs == ("early",)  # made early
    assert by_tensor["early"].stages == ()
    assert by_tensor["both"].outputs == ("both",)  # leaves, and is read on
    assert by_tensor["both"].stages == (1,)
    nets.judge(parts.model, parts)


def test_a_weight_of_two_stages_is_held_by_both(split):
    parts = split(nets.boundaries(), ["skip"], ["both"])
    graph = parts.model.graph
    assert [sum(graph.ops[i].weight_bytes > 0 for i in stage) > 0 for stage in parts.stages] == [
        True
    ] * 3
    assert parts.model.lowered.weight_bytes == 2 * 4 * 4 * 4
    nets.judge(parts.model, parts)


def test_a_tensor_that_skips_two_stages_goes_to_its_reader_only(split):
    proto = nets.net(
        """g (float[4,4] x) => (float[4,4] y) {
            s = MatMul(x, w)  a = MatMul(x, v)  b = MatMul(a, w)
            y = MatMul(b, s)
        }""",
        {"w": (4, 4), "v": (4, 4)},
    )
    parts = split(proto, ["s"], ["a"], ["b"])
    assert nets.readers(parts, "s") == (3,)
    nets.judge(parts.model, parts)


def test_a_stage_without_a_model_input(split):
    parts = split(nets.boundaries(), ["both"], ["mid"])
    assert [p.name for p in parts.model.wiring(parts.stages).stages[1].inputs] == ["both"]


def test_a_stage_that_reads_nothing_at_all(split):
    proto = nets.net(
        """g (float[2,3] x) => (float[2,3] y, float[3] c) {
            c = Relu(w)
            y = Add(x, w)
        }""",
        {"w": (3,)},
    )
    model = split(proto).model
    constant = next(op.name for op in model.graph.ops if not op.inputs)
    parts = model.split([[constant]])
    assert parts.model.wiring(parts.stages).stages[0].inputs == ()
    nets.judge(model, parts)


@pytest.mark.parametrize("dtype", ["int8", "int32", "float16", "bool"])
def test_d4_element_types_cross_a_cut_unchanged(split, dtype):
    proto = nets.net(
        f"""g ({dtype}[3,4] x) => ({dtype}[8,3] y, {dtype}[4,6] z) {{
            a = Transpose(x)
            y = Concat<axis=0>(a, a)
            z = Concat<axis=1>(a, a)
        }}"""
    )
    parts = split(proto, ["a"])
    assert nets.live(parts) == ("a",)
    assert parts.model.graph.tensors["a"].dtype == dtype
    nets.judge(parts.model, parts)


def test_d5_onnx_control_flow_is_opaque(split):
    from onnx import helper

    proto = nets.net("g (float[2] x, bool c) => (float[2] y) { r = Relu(x)  y = Exp(r) }")
    branches = [
        helper.make_graph([helper.make_node(k, ["r"], ["b"])], k, [], [value("b", (2,))])
        for k in ("Exp", "Tanh")
    ]
    node = helper.make_node(
        "If", ["c"], ["y"], name="choice", then_branch=branches[0], else_branch=branches[1]
    )
    proto.graph.node[1].CopyFrom(node)
    parts = split(proto, ["r"])
    assert [op.sources for op in parts.model.graph.ops if op.opaque] == [("choice",)]
    with pytest.raises(ModelError, match="node 'choice' cannot run in TVM"):
        parts.pipeline()
