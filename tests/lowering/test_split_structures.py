"""Structures that splitters got wrong, compared with onnxruntime on the original net."""

import pytest

from autosplit import api
from autosplit.errors import ModelError
from tests import nets
from tests.build import value


@pytest.fixture
def split(save):
    """Write a net, load it, split it."""

    def make(proto, *after):
        return api.load_model(save(proto)).split(after)

    return make


def test_tensors_out_of_tuples_cross_cuts(split):
    model = split(nets.tuples()).model
    one_each = api.Split(model, tuple((i,) for i in range(len(model.graph.ops))))
    nets.judge(model, one_each, items=2)


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


def test_a_stage_that_reads_nothing_at_all(split):
    text = "g (float[2,3] x) => (float[2,3] y, float[3] c) { c = Relu(w)  y = Add(x, w) }"
    model = split(nets.net(text, {"w": (3,)})).model
    constant = next(op.name for op in model.graph.ops if not op.inputs)
    parts = model.split([[constant]])
    assert parts.model.wiring(parts.stages).stages[0].inputs == ()
    nets.judge(model, parts)


@pytest.mark.parametrize("dtype", ["int8", "int32", "float16", "bool"])
def test_element_types_cross_a_cut_unchanged(split, dtype):
    lines = "a = Transpose(x)  y = Concat<axis=0>(a, a)  z = Concat<axis=1>(a, a)"
    proto = nets.net(f"g ({dtype}[3,4] x) => ({dtype}[8,3] y, {dtype}[4,6] z) {{ {lines} }}")
    parts = split(proto, ["a"])
    assert nets.live(parts) == ("a",)
    assert parts.model.graph.tensors["a"].dtype == dtype
    nets.judge(parts.model, parts)


def test_onnx_control_flow_is_opaque(split):
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
