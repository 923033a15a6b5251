"""Any convex set of fused ops by itself, equal to the intermediate tensors of the whole net."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import autosplit
from autosplit.deploy.verify import verify
from autosplit.errors import ConfigError, SplitError
from autosplit.hardware.measurement.parity import compare
from autosplit.lowering.convex import between, require_convex
from tests import nets
from tests.hardware.fakes import graph
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


@pytest.mark.parametrize(
    ("net", "names", "inputs", "outputs"),
    [(nets.parallel(), ["b0", "d1", "d0"], {"stem"}, {"b0", "d1"}),  # several tensors
     (nets.boundaries(), ["both", "mid"], {"skip"}, {"both", "mid"})],  # both outputs
)  # fmt: skip
def test_a_part_reads_and_makes_what_crosses_its_boundary(save, net, names, inputs, outputs):
    model = autosplit.load_model(save(net))
    part = model.extract(names)
    assert {p.name for p in part.wiring.inputs} == inputs
    assert {p.name for p in part.wiring.outputs} == outputs
    judge_part(part, intermediate(model))


def test_a_block_between_two_nodes_is_written_runs_and_verifies_by_itself(block, tmp_path):
    assert [port.name for port in block.wiring.inputs] == ["out0"]
    assert [port.name for port in block.wiring.outputs] == ["out1"]
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


def test_a_part_is_no_json_file_and_replaces_no_other_file(block, tmp_path):
    (tmp_path / "my.json").write_text("mine")
    for name in ("block.json", "block.onnx", "block", block.model.path.with_suffix(".so"), "my.so"):
        with pytest.raises(ConfigError, match=r"block|is read here|my.json' was not written"):
            block.export(tmp_path / name)
    assert [*tmp_path.glob("my.*")] == [tmp_path / "my.json"]


# convex sets of ops, against paths listed one by one


def net_of(reads):
    """Op i reads the tensors of the ops ``reads[i]``; those that read none read the input."""
    ops = [(f"t{i}", [f"t{p}" for p in sorted(read)] or ["x"]) for i, read in enumerate(reads)]
    return graph(ops, ["x"], [f"t{len(reads) - 1}"])


@st.composite
def questions(draw):
    n = draw(st.integers(1, 7))
    reads = [draw(st.sets(st.integers(0, i - 1), max_size=3)) if i else set() for i in range(n)]
    some = st.sets(st.integers(0, n - 1), min_size=1, max_size=3)
    return reads, draw(some), draw(some)


def paths(reads, start):
    """All paths from an op along the data."""
    ahead = [(start,)]
    for path in ahead:
        ahead += [(*path, i) for i, read_ops in enumerate(reads) if path[-1] in read_ops]
    return ahead


@given(questions())
def test_between_are_the_ops_on_a_path_and_an_end_on_none_is_named(question):
    reads, first, last = question
    on = {i for s in first for path in paths(reads, s) if path[-1] in last for i in path}
    if first | last <= on:
        assert between(net_of(reads), first, last) == tuple(sorted(on))
        assert require_convex(net_of(reads), on) == tuple(sorted(on))
        return
    lone = min(first - on) if first - on else min(last - on)
    with pytest.raises(SplitError, match=f"'op_t{lone}'"):
        between(net_of(reads), first, last)


@given(questions())
def test_a_set_is_convex_if_no_path_leaves_it_and_returns(question):
    reads, ops, _ = question
    outside = {i for s in ops for path in paths(reads, s) if path[-1] in ops for i in path} - ops
    if not outside:
        assert require_convex(net_of(reads), [*ops, *ops]) == tuple(sorted(ops))
        return
    with pytest.raises(SplitError) as error:
        require_convex(net_of(reads), ops)
    assert str(error.value).endswith("add " + ", ".join(f"'op_t{i}'" for i in sorted(outside)))


def test_no_op_at_all_is_no_set():
    with pytest.raises(SplitError, match="no op is named"):
        require_convex(net_of([set(), {0}]), [])


@pytest.mark.parametrize(
    ("last", "message"), [([0], "to op 'op_t0'"), ([0, 1], "to any of 'op_t0', 'op_t1'")]
)
def test_ends_that_no_path_joins_are_told(last, message):
    with pytest.raises(SplitError, match=f"no path leads from op 'op_t2' {message}; swap them"):
        between(net_of([set(), {0}, {1}]), [2], last)
