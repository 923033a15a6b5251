import re

import pytest

import autosplit
from autosplit.errors import SplitError
from autosplit.graph import ops_named
from autosplit.report.documents import exported
from tests import nets


@pytest.fixture
def residual(save):
    return save(nets.residual())


def test_a_cut_tells_what_it_took_along_and_what_crosses_it(residual, as_json):
    (cut,) = as_json("split", residual, "--after", "relu1a")["cuts"]
    # The op that lays the input out for the convolutions has no source node.
    sources = [op["sources"] for op in cut["took"] if op["sources"]]
    assert sources == [["conv0a", "relu0a"], ["conv0b", "sum0", "out0"]]
    assert {t["name"]: t["bytes"] for t in cut["tensors"]} == {"out0": 576, "relu1a": 576}
    assert cut["bytes"] == 1152


@pytest.mark.parametrize(("form", "is_said"), [("onnx", True), ("native", False)])
def test_replicas_by_hand_are_exported_and_run(residual, as_text, tmp_path, form, is_said):
    words = ["--after", "out0", "--runtime", "onnxruntime", "--replicas", "1,2", "--format", form]
    devices = ["--devices", "cores:0 cores:0 cores:1"]
    printed = as_text("split", residual, *words, *devices, "-o", tmp_path / "out")
    assert ("run one replica of each stage" in printed) == is_said
    assert "\nwrote " in printed
    with autosplit.load(tmp_path / "out") as pipeline:
        assert pipeline.replicas == (1, 2)
        assert len(pipeline.run(autosplit.load_model(residual).items(3))) == 3


def test_a_folded_node_says_why_it_cannot_be_cut_after(save, said):
    proto = nets.net("g (float[2] x) => (float[2] y) { i = Identity(x)  r = Relu(i)  y = Exp(r) }")
    assert "identity" in said("split", save(proto), "--after", "i")[1]


def test_a_tensor_stands_for_the_op_that_makes_it(save):
    model = autosplit.load_model(save(nets.tuples()))
    assert model.split([["q"]]).stages == model.split([["p"]]).stages


def test_the_number_of_an_op_stands_for_it(residual, as_json):
    graph = autosplit.load_model(residual).graph
    assert ops_named(graph, "op1") == (1,)
    (cut,) = as_json("split", residual, "--after", "op1")["cuts"]
    assert graph.ops[1].name not in [op["name"] for op in cut["took"]]
    with pytest.raises(SplitError, match="'op99'"):
        ops_named(graph, "op99")


def test_an_export_says_its_size_and_the_next_command(export):
    first, *_ = exported.lines(export.folder / "split.json")
    (export.folder / "notes").mkdir()
    (export.folder / "notes" / "mine.txt").write_text("a file of somebody else")
    assert exported.lines(export.folder / "split.json")[0] == first
    pattern = r"wrote .*/split\.json \(\d+ files, [\d.]+ [kM]B\); `autosplit verify .*` compares"
    assert re.match(pattern, first)


def test_extract_names_the_files_that_it_writes(residual, tmp_path, as_json, as_text):
    words = residual, "--from", "conv1a", "--to", "out1", "-o", tmp_path / "b.so"
    written = [str(tmp_path / f"b.{end}") for end in ("so", "json", "onnx")]
    assert as_text("extract", *words).splitlines()[-3:] == written
    assert as_json("extract", *words)["onnx"] == str(tmp_path / "b.onnx")
