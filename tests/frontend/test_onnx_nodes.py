"""Nodes of an ONNX graph: their names, their tensors, dropouts and constants."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit import api
from autosplit.errors import ModelError
from autosplit.frontend.onnx import importer
from tests.build import node, onnx_model, value
from tests.nets import judge, net

onnx = pytest.importorskip("onnx")


def named(*nodes: Any) -> list[str]:
    return [n.name for n in importer.source_nodes(onnx_model(nodes).graph)]


@pytest.mark.parametrize(
    ("nodes", "names"),
    [
        (["Relu x a first", "Split a b,c", "Exp b d"], ["first", "b", "d"]),
        (["Relu x a n", "Relu a b n", "Relu b c m"], ["n:a", "n:b", "m"]),
        (["Relu x a n", "Relu a b n", "Relu b c n:b"], ["n:a", "n:b:2", "n:b"]),
    ],
)
def test_a_node_has_its_name_or_that_of_its_output_told_apart(
    nodes: list[str], names: list[str]
) -> None:
    parts = [(*text.split(), "")[:4] for text in nodes]
    assert named(*(node(k, x, y.replace(",", " "), name) for k, x, y, name in parts)) == names


@given(st.lists(st.sampled_from(["", "n", "n:t1", "t0", "t1:t1"]), min_size=1, max_size=6))
def test_every_node_has_a_name_of_its_own(names: list[str]) -> None:
    nodes = [node("Relu", f"t{i}", f"t{i + 1}", name) for i, name in enumerate(names)]
    unique_names = named(*nodes)
    assert len(set(unique_names)) == len(names)
    assert all(
        f == n
        for f, n in zip(unique_names, names, strict=True)
        if n and names.count(n) == 1 and unique_names.count(n) == 1
    )


def test_inputs_and_outputs_that_are_left_out_are_none() -> None:
    model = onnx_model([node("Resize", "x", "y")])
    del model.graph.node[0].input[:]
    model.graph.node[0].input.extend(["x", "", "s"])
    model.graph.node[0].output.append("")
    (source,) = importer.source_nodes(model.graph)
    assert (source.inputs, source.outputs) == (("x", "s"), ("y",))


# dropout


def dropout(
    opset: int, attributes: dict[str, Any], inputs: str = "x", outputs: str = "y", **weights: Any
) -> Any:
    nodes = [node("Dropout", inputs, outputs, "drop", **attributes)]
    if " " in outputs:
        nodes.append(node("Cast", outputs.split()[1], "z", to=1))
    graph_outputs = ["y", "z"] if " " in outputs else ["y"]
    return onnx_model(nodes, outputs=graph_outputs, weights=weights, opset=opset)


OFF, ON, RATIO = np.array(False), np.array(True), np.array(0.5, np.float32)


@pytest.mark.parametrize(
    "model",
    [
        dropout(12, {}),
        dropout(13, {}, "x r", r=RATIO),
        dropout(13, {}, "x r t", r=RATIO, t=OFF),
        dropout(10, {"ratio": 0.5}),
        dropout(6, {"is_test": 1}),
        dropout(6, {}),
    ],
    ids=["plain", "ratio", "inference", "attribute", "is_test", "default"],
)
def test_a_dropout_whose_mask_nobody_reads_passes_its_input_on(save: Any, model: Any) -> None:
    model.graph.node.append(node("Relu", "y", "end"))
    model.graph.output[0].name = "end"
    loaded = api.load_model(save(model))
    assert [op.sources for op in loaded.graph.ops] == [("end",)]
    assert [f.reason for f in loaded.graph.folded] == ["identity: passes 'x' on"]


def decided_at_run_time() -> Any:
    model = dropout(13, {}, "x r t", r=RATIO)
    model.graph.input.append(value("t", (), "BOOL"))
    return model


@pytest.mark.parametrize(
    "model",
    [
        dropout(13, {}, "x r t", r=RATIO, t=ON),
        dropout(13, {}, "x r t", "y m", r=RATIO, t=ON),
        dropout(6, {"is_test": 0}),
        decided_at_run_time(),
    ],
    ids=["mode", "mask", "is_test", "input"],
)
def test_a_dropout_that_trains_is_refused_by_name_alone(save: Any, model: Any, capfd: Any) -> None:
    with pytest.raises(
        ModelError, match=r"node 'drop' \(Dropout\) cannot be imported: it drops values at random"
    ):
        api.load_model(save(model))
    gc.collect()
    assert capfd.readouterr() == ("", "")


def test_a_mask_that_is_an_output_keeps_everything(save: Any) -> None:
    text = "g (float[1,4] x) => (float[1,4] z, bool[1,4] m) { y, m = Dropout(x)  z = Relu(y) }"
    model = api.load_model(save(net(text)))
    judge(model, model.split([]))


def test_a_mask_that_is_read_keeps_everything(save: Any) -> None:
    model = api.load_model(save(dropout(13, {}, "x r t", "y m", r=RATIO, t=OFF)))
    judge(model, model.split([]), items=1)


# what the importer reads otherwise


@pytest.mark.parametrize(
    ("attribute", "values", "kind"),
    [
        ("value_float", 2.5, "FLOAT"),
        ("value_floats", [1.5, 2.5], "FLOAT"),
        ("value_int", 3, "INT64"),
        ("value_ints", [4, 5], "INT64"),
    ],
)
def test_a_constant_of_any_spelling_is_its_value(
    save: Any, attribute: str, values: Any, kind: str
) -> None:
    x = value("x", (2,), kind)
    nodes = [node("Constant", "", "c", **{attribute: values}), node("Add", "x c", "y")]
    model = api.load_model(save(onnx_model(nodes, [x], [value("y", (2,), kind)])))
    judge(model, model.split([]), items=1)
