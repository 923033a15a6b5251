import pytest

from tests.nets import net


def test_with_a_profile_the_time_of_each_op_is_shown(as_text, as_json, branches):
    profiled = as_json("inspect", branches.path, "--profile")
    assert len(profiled["op_ms"]) == len(profiled["ops"])
    assert {"name", "kernel", "sources", "inputs", "outputs"} <= set(profiled["ops"][0])
    keys = {"name", "shape", "dtype", "bytes", "producer", "consumers"}
    assert keys == set(profiled["tensors"][0])
    assert " ms\n" in as_text("inspect", branches.path, "--profile")


def test_kernels_that_no_rule_schedules_are_named(as_text, as_json, save):
    text = """g (float[4,32] x) => (float[4,3] y, int64[4,3] at) {
        k = Constant<value_ints=[3]>()  r = Relu(x)  y, at = TopK(r, k)
    }"""
    path = save(net(text, {}))
    assert as_json("inspect", path)["unscheduled"] == ["topk"]
    assert as_text("inspect", path).splitlines()[-1] == "no schedule: topk (op1_topk)"


def test_a_node_is_found(as_text, as_json, branches, save):
    fused = "first.sum is in fused op op4_fused_conv2d1_add_add1_relu\n"
    assert as_text("inspect", branches.path, "--node", "first.sum") == fused
    path = save(net("g (float[4] x) => (float[4] y) { a = Relu(x) i = Identity(a) y = Exp(i) }"))
    said = "i was folded: identity: passes 'a' on\n"
    assert as_text("inspect", path, "--node", "i") == said
    assert as_json("inspect", branches.path, "--node", "stem") == {
        "node": "stem", "op": "op0_fused_conv2d_add_relu", "parts": [], "folded": None,
    }  # fmt: skip


RECURRENT = """g (float[1,64] x, float[1,64] past_h) => (float[1,64] y, float[1,64] present_h) {
    a = MatMul(x, w0)  b = Add(a, past_h)  c = MatMul(b, w1)  present_h = Tanh(c)
    y = MatMul(present_h, w2)
}"""


def test_a_state_keeps_its_ops_together(as_text, as_json, save):
    path = save(net(RECURRENT, dict.fromkeys(("w0", "w1", "w2"), (64, 64))))
    proposal = "which a stream keeps; --state auto takes all: --state past_h=present_h"
    assert proposal in as_text("inspect", path)
    text = as_text("inspect", path, "--state", "past_h=present_h")
    assert proposal not in text
    assert "keeps" in text
    document = as_json("inspect", path, "--state", "past_h=present_h")
    (state,) = document["states"]
    assert state["ops"] == [op["name"] for op in document["ops"][:2]]
    assert state["share"] == pytest.approx(2 / 3, rel=0.05)
    # Without the state the second op could be on either side.
    assert document["balance"]["with_states"] == pytest.approx(2 / 3, rel=0.05)
    assert document["balance"]["forbidden"] == ""
