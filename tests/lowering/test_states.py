from dataclasses import replace

import pytest

from autosplit.errors import ConfigError
from autosplit.graph import Op, build
from autosplit.lowering.states import match_states, propose_states, proposed_pairs

SMALL, LARGE = ((2,), "float32", 8), ((3,), "float32", 12)
TENSORS = {"x": SMALL, "h": SMALL, "wide": LARGE, "unread": SMALL, "a": SMALL, "b": SMALL}


def recurrent():
    ops = [Op("first", "k", (), ("x", "h", "wide"), ("a",)), Op("second", "k", (), ("a",), ("b",))]
    return build("net", ops, TENSORS, ["x", "h", "wide", "unread"], ["b", "a"])


OUTPUTS = (("y", "b"), ("h_next", "a"), ("same", "x"))


def one_op(inputs, outputs, **sizes):
    """A graph of one op, whose tensors are small unless said otherwise, and its outputs."""
    op = Op("op", "k", (), tuple(inputs), tuple(outputs))
    tensors = dict.fromkeys([*inputs, *outputs], SMALL) | sizes
    return build("net", [op], tensors, inputs, outputs), [(name, name) for name in outputs]


def test_a_state_binds_its_readers_to_the_op_that_renews_it():
    graph = recurrent()
    for name, output, ops in (("h", "y", (0, 1)), ("h", "h_next", (0,)), ("unread", "y", (1,))):
        states = match_states(graph, OUTPUTS, {name: output})
        assert replace(graph, states=states).ops_of_states == (ops,)


@pytest.mark.parametrize(
    ("pairs", "problem"),
    [
        ({"g": "h_next"}, "no input 'g'"),
        ({"h": "h_nxt"}, "no output 'h_nxt'; did you mean 'h_next'?"),
        ({"h": "h_next", "x": "h_next"}, "two states"),
        ({"wide": "h_next"}, r"float32\[3\].*float32\[2\]"),
        ({"h": "same"}, "'same' is an unchanged input; let an op make it"),
        ({"x": "h_next"}, "an output is state 'x' unchanged; let an op make that output"),
    ],
)
def test_a_wrong_pair_is_refused_by_name(pairs, problem):
    with pytest.raises(ConfigError, match=problem):
        match_states(recurrent(), OUTPUTS, pairs)


LAYER = "past_key_values.layers.0.keys"
PAIRS = {
    "past_3": "present_3", "past_of_past_3": "present_of_past_3", "past3": "next3",
    "past_key_values.0.key": "present_key_values.0.key", "prev_mem": "next_mem", "h0": "hn",
    "c_0": "c_n", "mem2_in": "mem2_out", "h": "h_next", "state": "new_state", "p1": "n1",
    "input.X": "output.X", f"input.{LAYER}": f"output.{LAYER}", "k_cache": "updated_k_cache",
    "past_key_values.1.key": "present.1.key", "input.past.0.key": "output.present.0.key",
    "in_state_1": "state_out_1",
}  # fmt: skip


@pytest.mark.parametrize(("before", "after"), PAIRS.items())
def test_names_that_belong_together_are_proposed(before, after):
    assert propose_states(*one_op(["x", before], [after])) == ({before: after}, {})


def test_unlike_tensors_and_plain_names_are_no_state():
    assert propose_states(*one_op(["h0"], ["hn"], hn=LARGE)) == ({}, {})
    assert propose_states(*one_op(["input"], ["output"])) == ({}, {})


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [(["h"], ["h_out", "h_next"]), (["past", "prev"], ["next"])],
    ids=["two outputs", "two inputs"],
)
def test_all_that_fit_are_listed_where_a_state_is_not_clear(inputs, outputs):
    assert propose_states(*one_op(inputs, outputs)) == ({}, dict.fromkeys(inputs, outputs))


@pytest.mark.parametrize(
    ("outputs", "problem"),
    [(["h_next", "new_h"], r"ambiguous \('h': h_next, new_h\); give each as INPUT=OUTPUT"),
     (["y"], "no output looks like the successor of an input")],
)  # fmt: skip
def test_pairs_that_are_not_clear_are_not_taken(outputs, problem):
    with pytest.raises(ConfigError, match=problem):
        proposed_pairs(*one_op(["h"], outputs))
