"""Any convex set of fused ops by itself, equal to the intermediate tensors of the whole net."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autosplit
from autosplit import cuts
from autosplit.errors import ConfigError, SplitError
from autosplit.hardware.measurement.parity import compare
from autosplit.lowering import convex
from tests import nets
from tests.nets import onnxruntime_outputs

pytest.importorskip("onnxruntime")


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


def test_a_set_that_is_not_convex_shows_the_path_that_leaves_and_returns(save):
    model = autosplit.load_model(save(nets.parallel()))
    op = {source: op.name for op in model.graph.ops for source in op.sources}
    with pytest.raises(SplitError) as error:
        model.extract(["d0", "y"])
    assert f"{op['d0']} -> {op['d1']} -> {op['d2']} -> {op['y']}" in str(error.value)
    assert f"add '{op['d1']}', '{op['d2']}'" in str(error.value)


def test_no_path_between_two_ops_is_an_error_that_names_one(save):
    model = autosplit.load_model(save(nets.parallel()))
    op = {source: op.name for op in model.graph.ops for source in op.sources}
    with pytest.raises(SplitError, match=op["a0"]):
        model.extract(first=["a0"], last=["b0"])
    with pytest.raises(SplitError, match="'nope'"):
        model.extract(["nope"])
    with pytest.raises(SplitError, match="name at least one"):
        model.extract([])


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


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_set_is_convex_or_shows_a_way_out_and_back(data):
    graph = Reads(data.draw(st.lists(st.sets(st.integers(0, 7)), min_size=1, max_size=8)))
    chosen = data.draw(st.sets(st.integers(0, len(graph.ops) - 1), min_size=1))
    paths = [
        p for p in graph.paths() if p[0] in chosen and p[-1] in chosen and not chosen.issuperset(p)
    ]
    if not paths:
        assert set(convex.require_convex(graph, chosen)) == chosen
        return
    with pytest.raises(SplitError) as error:
        convex.require_convex(graph, chosen)
    shown = [
        int(name)
        for name in str(error.value).split("the path ")[1].split(" leaves")[0].split(" -> ")
    ]
    assert shown in paths
    assert not chosen.intersection(shown[1:-1])


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_what_lies_between_two_ops_are_the_paths_between_them(data):
    graph = Reads(data.draw(st.lists(st.sets(st.integers(0, 7)), min_size=1, max_size=8)))
    ends = st.integers(0, len(graph.ops) - 1)
    first, last = data.draw(ends), data.draw(ends)
    on_a_path = {i for p in graph.paths() if p[0] == first and p[-1] == last for i in p}
    if not on_a_path:
        with pytest.raises(SplitError):
            convex.between(graph, [first], [last])
        return
    assert set(convex.between(graph, [first], [last])) == on_a_path
    assert convex.require_convex(graph, on_a_path)


class Reads:
    """A graph known by what each op reads; ops are called by their numbers."""

    def __init__(self, reads: list[set[int]]) -> None:
        self.reads = [{r for r in chains if r < i} for i, chains in enumerate(reads)]
        self.predecessors = tuple(cuts.bitset(r) for r in self.reads)
        self.successors = tuple(
            cuts.bitset(j for j, r in enumerate(self.reads) if i in r) for i in range(len(reads))
        )
        self.ops = [Named(str(i)) for i in range(len(reads))]

    def paths(self) -> list[list[int]]:
        chains: list[list[int]] = []
        for i in range(len(self.ops)):
            chains += [[i], *([*p, i] for p in list(chains) if p[-1] in self.reads[i])]
        return chains


class Named:
    def __init__(self, name: str) -> None:
        self.name = name
