"""A bench on real nets: the profile in the graph's order, and no number for a candidate that computes something else."""

import dataclasses
import json

import numpy as np
import pytest

from autosplit import api
from autosplit.errors import ModelError, StageError
from autosplit.hardware import profile
from autosplit.hardware.local_bench import LocalBench
from autosplit.hardware.measure import Budget
from autosplit.hardware.results import Profile
from autosplit.hardware.stage import VmStage
from tests.build import node, onnx_model, value

pytest.importorskip("onnxruntime")
QUICK = Budget(seconds=0.05, items=4, latency_items=2)


@pytest.fixture
def bench(branches):
    return LocalBench(branches, api.device.along(2), QUICK)


@pytest.fixture
def stages(branches):
    return branches.split([["first"]]).stages


def test_a_right_candidate_is_measured(bench, stages):
    found = bench.measure(stages)
    assert found.accuracy.equal
    assert 0 < found.period_ms.low <= found.period_ms.median <= found.period_ms.high
    assert min(found.stage_ms) > 0
    assert len(found.stage_ms) == 2


@pytest.mark.parametrize(
    "spoil", [lambda a: a * 1.001, lambda a: a * np.nan, lambda a: a[::-1].copy() * 0], ids=["little", "nan", "zero"]
)
def test_a_candidate_that_computes_something_else_has_no_number(bench, stages, monkeypatch, spoil):
    real = VmStage.run

    def run(self, values):
        import tvm

        return [tvm.runtime.tensor(spoil(v.numpy()).astype("float32")) for v in real(self, values)]

    monkeypatch.setattr(VmStage, "run", run)
    with pytest.raises(StageError, match="wrong result"):
        bench.measure(stages)


def test_swapped_inputs_have_no_number(bench, stages, monkeypatch):
    monkeypatch.setattr(VmStage, "run", _swapping(VmStage.run))
    with pytest.raises(StageError, match="wrong result"):
        bench.measure(stages)


def test_the_judge_goes_before_the_candidate(branches, stages, monkeypatch):
    """An item that onnxruntime refuses, an index past the end of a table say, could crash a kernel."""
    monkeypatch.setattr(VmStage, "run", lambda *_: pytest.fail("ran"))
    spoilt = dataclasses.replace(branches, judge=Refuses())
    with pytest.raises(ModelError, match="index out of bounds"):
        LocalBench(spoilt, api.device.along(2), QUICK).measure(stages)


class Refuses:
    name = "a judge"

    def outputs(self, items):
        raise ModelError("index out of bounds")


def _swapping(real):
    """A stage that takes its first two inputs of equal shape for each other."""

    def run(self, values):
        values = list(values)
        pairs = [
            (i, j) for i in range(len(values)) for j in range(i) if tuple(values[i].shape) == tuple(values[j].shape)
        ]
        for i, j in pairs[:1]:
            values[i], values[j] = values[j], values[i]
        return real(self, values)

    return run


def test_every_way_without_splitting_is_measured(bench):
    found = {b.name: b for b in bench.baselines()}
    assert "one core" in found
    if len(api.device.available()) > 1:
        assert set(found) == {"one core", "all cores", "replicas"}
        assert found["replicas"].copies == len(api.device.available())
    assert all(b.period_ms.median > 0 < b.latency_ms.median for b in found.values())


def test_the_identity_names_what_a_study_must_not_mix(bench, branches):
    assert {"model", "target", "devices", "backend", "versions", "shapes"} <= set(bench.identity)
    other = LocalBench(branches, api.device.along(1), QUICK)
    assert other.identity["devices"] != bench.identity["devices"]
    assert all(isinstance(v, str) for v in bench.identity.values())


def test_a_profile_has_a_time_for_each_op(bench, branches):
    found = bench.profile()
    assert [p.device for p in found] == list(bench.devices)
    assert all(len(p.op_ms) == len(p.spread_ms) == len(branches.graph.ops) for p in found)


def test_inputs_are_profiled_in_the_order_the_ops_read_them(save):
    nodes = [node("Relu", "late", "a"), node("MatMul", "a early", "y")]
    model = api.load_model(
        save(onnx_model(nodes, [value("early", (3, 5)), value("late", (2, 3)), value("unread", (7,))]))
    )
    found = model.profile(api.device.along(1)[0], 0.01, force=True)
    assert len(found.op_ms) == len(model.graph.ops)


def test_equal_kernels_in_another_order_have_a_profile_of_their_own(save, monkeypatch):
    """Both nets call kernels ``exp`` and ``exp1``, on tensors of swapped sizes."""
    keys = []
    monkeypatch.setattr(profile, "cached", lambda key, make, force: keys.append(tuple(key)) or Profile("", (), ()))
    for name, (first, second) in {"a": ((2, 3), (4, 5)), "b": ((4, 5), (2, 3))}.items():
        nodes = [node("Exp", "x", "y"), node("Exp", "u", "v")]
        path = save(onnx_model(nodes, [value("x", first), value("u", second)], ["y", "v"]), f"{name}.onnx")
        api.load_model(path).profile(api.device.along(1)[0])
    assert keys[0] != keys[1]


def test_a_damaged_profile_is_measured_again(tmp_path, monkeypatch):
    monkeypatch.setenv("AUTOSPLIT_CACHE", str(tmp_path))
    made = Profile("cores:0", (1.0, 2.0), (0.1, 0.2))
    assert profile.cached(["key"], lambda: made) == made
    assert profile.cached(["key"], lambda: Profile("other", (), ())) == made
    (file,) = (tmp_path / "profiles").glob("*.json")
    assert json.loads(file.read_text())["op_ms"] == [1.0, 2.0]
    file.write_text("{")
    assert profile.cached(["key"], lambda: made) == made
