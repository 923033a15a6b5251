"""ONNX files that are damaged, unsorted or meant to take for ever: read, or refused in one line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import autosplit
from autosplit.errors import ModelError
from autosplit.frontend.onnx import file
from tests.build import onnx_model, value

FLOAT = TensorProto.FLOAT


def _model(nodes: Any, **more: Any) -> Any:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", FLOAT, [2, 4])],
        [helper.make_tensor_value_info("y", FLOAT, [2, 4])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, **more)


def test_nodes_in_any_order_are_read(save: Any) -> None:
    nodes = [helper.make_node("Relu", ["a"], ["y"]), helper.make_node("Tanh", ["x"], ["a"])]
    model = autosplit.load_model(save(_model(nodes)))
    (item,) = model.items(1)
    (outputs,) = model.expected([item])
    assert np.allclose(outputs["y"], np.maximum(np.tanh(item["x"]), 0), atol=1e-6)


def test_a_cycle_is_named(save: Any) -> None:
    nodes = [helper.make_node("Relu", ["a"], ["y"]), helper.make_node("Tanh", ["y"], ["a"])]
    with pytest.raises(ModelError, match=r"reads '[ay]'"):
        autosplit.load_model(save(_model(nodes)))


def test_functions_that_multiply_are_refused_before_they_are_inlined(
    save: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    functions = [
        helper.make_function(
            "local",
            f"f{i}",
            ["x"],
            ["y"],
            [
                helper.make_node(f"f{i + 1}", ["x"], ["a"], domain="local"),
                helper.make_node(f"f{i + 1}", ["a"], ["y"], domain="local"),
            ],
            opsets,
        )
        for i in range(30)
    ]
    last = [helper.make_node("Relu", ["x"], ["y"])]
    functions.append(helper.make_function("local", "f30", ["x"], ["y"], last, opsets))
    call = [helper.make_node("f0", ["x"], ["y"], domain="local")]
    with pytest.raises(ModelError, match="more than 1000000 nodes once its functions are inlined"):
        file.read(save(_model(call, functions=functions)))


def test_a_function_that_calls_itself_is_refused(save: Any) -> None:
    body = [helper.make_node("f", ["x"], ["y"], domain="local")]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    function = helper.make_function("local", "f", ["x"], ["y"], body, opsets)
    with pytest.raises(ModelError, match="cannot be inlined: one calls itself"):
        file.read(save(_model(body, functions=[function])))


def test_a_loop_of_constants_is_refused_and_not_run(save: Any) -> None:
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["c2"]), helper.make_node("Add", ["s", "s"], ["s2"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("s", FLOAT, [4]),
        ],
        [
            helper.make_tensor_value_info("c2", TensorProto.BOOL, []),
            helper.make_tensor_value_info("s2", FLOAT, [4]),
        ],
    )
    model = _model(
        [
            helper.make_node("Loop", ["trips", "go", "start"], ["end"], body=body),
            helper.make_node("Add", ["x", "end"], ["y"]),
        ]
    )
    model.graph.initializer.extend(
        [
            helper.make_tensor("trips", TensorProto.INT64, [], [2**40]),
            helper.make_tensor("go", TensorProto.BOOL, [], [True]),
            helper.make_tensor("start", FLOAT, [4], [0.0] * 4),
        ]
    )
    with pytest.raises(ModelError, match="constant step by step; store its result as a weight"):
        autosplit.load_model(save(model))


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("Shape", [], ["a"]),
        helper.make_node("If", [], ["a"]),
        helper.make_node("Constant", [], ["a"]),
        helper.make_node("If", ["a"], ["b"]),
        helper.make_node("Relu", ["x"], []),
    ],
    ids=["shape", "if", "constant", "no branches", "no output"],
)
def test_a_node_that_lacks_inputs_or_attributes_is_an_error_of_one_line(
    save: Any, node: Any
) -> None:
    nodes = [node, helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Relu", ["x"], ["y"])]
    if node.op_type != "If":
        nodes.append(helper.make_node("If", ["missing"], ["z"]))
    with pytest.raises(ModelError):
        autosplit.load_model(save(_model(nodes)))


@pytest.mark.parametrize("key", ["location", "offset", "length"])
def test_external_data_with_a_very_long_value_is_named(save: Any, key: str) -> None:
    weight = TensorProto(name="w", data_type=FLOAT, dims=[4])
    weight.data_location = TensorProto.EXTERNAL
    entries = {"location": "net.onnx", "offset": "0", "length": "16"} | {key: "9" * 5000}
    for name, text in entries.items():
        weight.external_data.add(key=name, value=text)
    model = _model([helper.make_node("Add", ["x", "w"], ["y"])])
    model.graph.initializer.append(weight)
    with pytest.raises(ModelError, match=r"weight 'w' (needs the file|has offset)") as error:
        file.read(save(model))
    assert len(str(error.value)) < 400


def test_a_model_without_ops_has_no_cuts(save: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from autosplit.cli import main

    path = save(onnx_model([helper.make_node("Identity", ["x"], ["y"])], [value("x", (2,))], ["y"]))
    assert main(["inspect", str(path)]) == 0
    assert "0 cuts into two stages" in capsys.readouterr().out
