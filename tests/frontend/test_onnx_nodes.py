import gc

import numpy as np
import pytest

from autosplit import api
from autosplit.errors import ModelError
from autosplit.frontend.onnx import importer
from tests.build import node, onnx_model
from tests.nets import net


def named(*nodes):
    return [n.name for n in importer.source_nodes(onnx_model(nodes).graph)]


@pytest.mark.parametrize(
    ("nodes", "names"),
    [(["Relu x a first", "Split a b,c", "Exp b d"], ["first", "b", "d"]),
     (["Relu x a n", "Relu a b n", "Relu b c m"], ["n:a", "n:b", "m"]),
     (["Relu x a n", "Relu a b n", "Relu b c n:b"], ["n:a", "n:b:2", "n:b"])],
)  # fmt: skip
def test_a_node_has_its_name_or_that_of_its_output_told_apart(nodes, names):
    parts = [(*text.split(), "")[:4] for text in nodes]
    assert named(*(node(k, x, y.replace(",", " "), name) for k, x, y, name in parts)) == names


def test_inputs_and_outputs_that_are_left_out_are_none():
    model = onnx_model([node("Resize", "x", "y")])
    del model.graph.node[0].input[:]
    model.graph.node[0].input.extend(["x", "", "s"])
    model.graph.node[0].output.append("")
    (source,) = importer.source_nodes(model.graph)
    assert (source.inputs, source.outputs) == (("x", "s"), ("y",))


WEIGHTS = {"off": np.array(False), "on": np.array(True), "r": np.array(0.5, np.float32)}


def dropout(opset, call="Dropout(x)", outputs="y"):
    text = f"g (float[1,4] x, bool t) => (float[1,4] end) {{ {outputs} = {call}  end = Relu(y) }}"
    model = net(text, WEIGHTS, opset)
    if "t)" not in call:
        del model.graph.input[1]
    return model


@pytest.mark.parametrize(
    "model",
    [dropout(12), dropout(13, "Dropout(x, r)"), dropout(13, "Dropout(x, r, off)"),
     dropout(10, "Dropout<ratio=0.5>(x)"), dropout(6, "Dropout<is_test=1>(x)"), dropout(6)],
)  # fmt: skip
def test_a_dropout_whose_mask_nobody_reads_passes_its_input_on(save, model):
    loaded = api.load_model(save(model))
    assert [op.sources for op in loaded.graph.ops] == [("end",)]
    assert [f.reason for f in loaded.graph.folded] == ["identity: passes 'x' on"]


@pytest.mark.parametrize(
    "model",
    [dropout(13, "Dropout(x, r, on)"), dropout(13, "Dropout(x, r, on)", "y, m"),
     dropout(13, "Dropout(x, r, t)"), dropout(6, "Dropout<is_test=0>(x)")],
)  # fmt: skip
def test_a_dropout_that_trains_is_refused_by_name_alone(save, model, capfd):
    with pytest.raises(ModelError, match=r"'y' \(Dropout\) cannot .*: it drops values at"):
        api.load_model(save(model))
    gc.collect()
    assert capfd.readouterr() == ("", "")
