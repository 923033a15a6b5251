import json

import pytest

from autosplit.cli import main
from tests.build import node, onnx_model
from tests.nets import net


@pytest.fixture
def shown(capsys):
    def run(*arguments):
        assert main(["inspect", *map(str, arguments)]) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture
def document(shown, branches):
    return json.loads(shown(branches.path, "-f", "json"))


def test_the_document_has_the_keys_of_the_design(document):
    keys = {"model", "inputs", "outputs", "folded", "ops", "tensors", "cuts", "unscheduled"}
    assert keys <= set(document)
    assert document["unscheduled"] == []
    assert {"name", "kernel", "sources", "inputs", "outputs"} <= set(document["ops"][0])
    tensor = {"name", "shape", "dtype", "bytes", "producer", "consumers"}
    assert tensor == set(document["tensors"][0])
    assert document["cuts"] == {"total": 67, "complete": True}


def test_shapes_are_shown_and_with_a_profile_the_time_of_each_op(shown, branches):
    assert "1x" in shown(branches.path)
    profiled = json.loads(shown(branches.path, "--profile", "-f", "json"))
    assert len(profiled["op_ms"]) == len(profiled["ops"])
    assert " ms\n" in shown(branches.path, "--profile")


def test_kernels_that_no_rule_schedules_are_named(shown, save):
    text = """g (float[4,32] x) => (float[4,3] y, int64[4,3] at) {
        k = Constant<value_ints=[3]>()  r = Relu(x)  y, at = TopK(r, k)
    }"""
    path = save(net(text, {}))
    assert json.loads(shown(path, "-f", "json"))["unscheduled"] == ["topk"]
    assert shown(path).splitlines()[-1] == "no schedule: topk (op1_topk)"


def test_a_node_is_found(shown, branches, squeezenet):
    assert (
        shown(branches.path, "--node", "first.sum")
        == "first.sum is in fused op op4_fused_conv2d1_add_add1_relu\n"
    )
    folded = squeezenet.graph.folded[0].name
    said = f"{folded} was folded: identity: passes 'r60' on\n"
    assert shown(squeezenet.path, "--node", folded) == said
    assert json.loads(shown(branches.path, "--node", "stem", "-f", "json")) == {
        "node": "stem", "op": "op0_fused_conv2d_add_relu", "parts": [], "folded": None,
    }  # fmt: skip


def test_an_unknown_node_is_named(said, branches):
    assert said("inspect", branches.path, "--node", "nope") == (
        2,
        "unknown source node 'nope'; `autosplit inspect` lists them",
    )
    code, line = said("inspect", branches.path, "--node", "Stme")
    assert (code, line.endswith("; did you mean 'stem'?")) == (2, True)


def test_a_shape_on_the_command_line_is_taken(shown, save):
    from tests.build import value

    path = save(onnx_model([node("Relu", "x", "y")], [value("x", ("n", 4))]))
    assert json.loads(shown(path, "--shape", "x=3X4", "-f", "json"))["inputs"][0]["shape"] == [3, 4]


RECURRENT = """g (float[1,64] x, float[1,64] past_h) => (float[1,64] y, float[1,64] present_h) {
    a = MatMul(x, w0)  b = Add(a, past_h)  c = MatMul(b, w1)  present_h = Tanh(c)
    y = MatMul(present_h, w2)
}"""


def test_a_state_keeps_its_ops_together(shown, save):
    path = save(net(RECURRENT, dict.fromkeys(("w0", "w1", "w2"), (64, 64))))
    proposal = "these look like states, which a stream keeps: --state past_h=present_h"
    assert proposal in shown(path)
    text = shown(path, "--state", "past_h=present_h")
    assert proposal not in text
    assert "keeps" in text
    document = json.loads(shown(path, "--state", "past_h=present_h", "-f", "json"))
    (state,) = document["states"]
    assert state["ops"] == [op["name"] for op in document["ops"][:2]]
    assert state["share"] == pytest.approx(2 / 3, rel=0.05)
    # Without the state the second op could be on either side.
    assert document["balance"]["with_states"] == pytest.approx(2 / 3, rel=0.05)
    assert document["balance"]["forbidden"] == ""
