"""Any convex set of fused ops by itself, equal to the intermediate tensors of the whole net."""

import numpy as np
import pytest

import autosplit
from autosplit.errors import ConfigError
from autosplit.hardware.measurement.parity import compare
from tests import nets
from tests.nets import onnxruntime_outputs


def intermediate(model, item):
    """Every tensor of the whole net by onnxruntime, as far as ONNX names it, and the inputs."""
    return dict(item) | nets.every_tensor(model, item)


def judge_part(model, part, known):
    wiring = part.wiring
    with part.pipeline() as pipeline:
        (got,) = pipeline.run([{p.name: known[p.name] for p in wiring.inputs}])
    assert compare([got], [{p.name: known[p.name] for p in wiring.outputs}]).equal


@pytest.fixture
def residual(save):
    return autosplit.load_model(save(nets.residual()))


def test_a_block_between_two_nodes_equals_the_tensors_of_the_whole(residual):
    part = residual.extract(first=["conv1a"], last=["out1"])
    assert [p.name for p in part.wiring.inputs] == ["out0"]
    assert [p.name for p in part.wiring.outputs] == ["out1"]
    judge_part(residual, part, intermediate(residual, residual.items(1)[0]))


def test_every_single_op_equals_the_tensors_of_the_whole(branches):
    known = intermediate(branches, branches.items(1)[0])
    for op in branches.graph.ops:
        judge_part(branches, branches.extract([op.name]), known)


def test_a_part_may_read_and_make_several_tensors(save):
    model = autosplit.load_model(save(nets.parallel()))
    part = model.extract(["b0", "d1", "d0"])
    assert {p.name for p in part.wiring.inputs} == {"stem"}
    assert {p.name for p in part.wiring.outputs} == {"b0", "d1"}
    judge_part(model, part, intermediate(model, model.items(1)[0]))


def test_a_part_hands_out_the_models_outputs_inside_it(save):
    model = autosplit.load_model(save(nets.boundaries()))
    part = model.extract(["both", "mid"])
    assert {p.name for p in part.wiring.outputs} == {"both", "mid"}
    judge_part(model, part, intermediate(model, model.items(1)[0]))


def test_a_written_part_runs_and_verifies_by_itself(residual, tmp_path):
    from autosplit.deploy.verify import verify

    manifest = residual.extract(first=["conv1a"], last=["out1"]).export(tmp_path / "block.so")
    known = intermediate(residual, residual.items(1)[0])
    with autosplit.load(manifest) as pipeline:
        (got,) = pipeline.run([{"out0": known["out0"]}])
    np.testing.assert_allclose(got["out1"], known["out1"], rtol=1e-4, atol=1e-4)
    (onnx,) = onnxruntime_outputs(tmp_path / "block.onnx", [{"out0": known["out0"]}])
    np.testing.assert_allclose(onnx["out1"], known["out1"], rtol=1e-5, atol=1e-5)
    assert verify(manifest).accuracy.equal


def test_a_part_whose_boundary_is_inside_a_node_says_so(save, tmp_path):
    model = autosplit.load_model(save(nets.inside_a_node()))
    inner = next(op.name for op in model.graph.ops if not op.sources)
    manifest = model.extract([inner]).export(tmp_path / "block.so")
    assert not (tmp_path / "block.onnx").exists()
    assert "not in the ONNX graph" in manifest.read_text()
    with autosplit.load(manifest) as pipeline:
        assert (
            len(pipeline.run([{p.name: np.ones(p.shape, p.dtype) for p in pipeline.wiring.inputs}]))
            == 1
        )


def test_a_part_is_no_json_file(residual, tmp_path):
    for name in ("block.json", "block.onnx", "block"):
        with pytest.raises(ConfigError, match="block"):
            residual.extract(["out0"]).export(tmp_path / name)
