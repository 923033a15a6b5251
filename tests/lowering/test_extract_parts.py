"""Any convex set of fused ops by itself, equal to the intermediate tensors of the whole net."""

import json

import numpy as np
import pytest

import autosplit
from autosplit.deploy.verify import verify
from autosplit.errors import ConfigError
from autosplit.hardware.measurement.parity import compare
from tests import nets
from tests.nets import onnxruntime_outputs


def intermediate(model):
    """Every tensor of the whole net by onnxruntime, as far as ONNX names it, and the inputs."""
    (item,) = model.items(1)
    return dict(item) | nets.every_tensor(model, item)


def judge_part(part, known):
    with part.pipeline() as pipeline:
        (outputs,) = pipeline.run([{p.name: known[p.name] for p in part.wiring.inputs}])
    assert compare([outputs], [{p.name: known[p.name] for p in part.wiring.outputs}]).equal


@pytest.fixture
def block(save):
    """The middle one of three residual blocks."""
    return autosplit.load_model(save(nets.residual())).extract(first=["conv1a"], last=["out1"])


def test_every_single_op_equals_the_tensors_of_the_whole(branches):
    known = intermediate(branches)
    for op in branches.graph.ops:
        judge_part(branches.extract([op.name]), known)


@pytest.mark.parametrize(
    ("net", "names", "inputs", "outputs"),
    [
        (nets.parallel(), ["b0", "d1", "d0"], {"stem"}, {"b0", "d1"}),  # several tensors
        (nets.boundaries(), ["both", "mid"], {"skip"}, {"both", "mid"}),  # both outputs
    ],
)
def test_a_part_reads_and_makes_what_crosses_its_boundary(save, net, names, inputs, outputs):
    model = autosplit.load_model(save(net))
    part = model.extract(names)
    assert {p.name for p in part.wiring.inputs} == inputs
    assert {p.name for p in part.wiring.outputs} == outputs
    judge_part(part, intermediate(model))


def test_a_block_between_two_nodes_is_written_runs_and_verifies_by_itself(block, tmp_path):
    assert [[p.name for p in ports] for ports in (block.wiring.inputs, block.wiring.outputs)] == [
        ["out0"],
        ["out1"],
    ]
    judge_part(block, known := intermediate(block.model))
    manifest = block.export(tmp_path / "block.so")
    with autosplit.load(manifest) as pipeline:
        results = pipeline.run([{"out0": known["out0"]}])
    results += onnxruntime_outputs(tmp_path / "block.onnx", [{"out0": known["out0"]}])
    assert compare(results, [{"out1": known["out1"]}] * 2).equal
    assert verify(manifest).accuracy.equal


def test_a_boundary_inside_a_node_leaves_no_submodel_and_the_manifest_says_why(save, tmp_path):
    model = autosplit.load_model(save(nets.inside_a_node()))
    inner = next(op.name for op in model.graph.ops if not op.sources)
    part = model.extract([inner]).export(tmp_path / "block.so")
    assert not (tmp_path / "block.onnx").exists()
    for manifest in (part, model.split([[inner]]).export(tmp_path / "out")):
        for stage in json.loads(manifest.read_text(encoding="utf-8"))["stages"]:
            assert stage["onnx"] is None
            assert "is not in the ONNX graph" in stage["onnx_absent"]
    with autosplit.load(part) as pipeline:
        item = {p.name: np.ones(p.shape, p.dtype) for p in pipeline.wiring.inputs}
        assert len(pipeline.run([item])) == 1


def test_a_part_is_no_json_file(block, tmp_path):
    for name in ("block.json", "block.onnx", "block"):
        with pytest.raises(ConfigError, match="block"):
            block.export(tmp_path / name)
