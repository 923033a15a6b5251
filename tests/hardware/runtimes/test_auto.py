import math
import re
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest

import autosplit
from autosplit import api
from autosplit.errors import ModelError, SplitError
from autosplit.hardware import batches, compiled_model
from autosplit.hardware.bench.local import LocalBench
from autosplit.hardware.devices import device as devices
from autosplit.hardware.devices.device import Cores
from autosplit.hardware.measurement.results import Profile
from autosplit.hardware.runtimes.onnxruntime.runtime import OnnxruntimeRuntime
from autosplit.hardware.runtimes.registry import AUTO, ONNXRUNTIME, TVM
from tests import nets
from tests.benches import BRIEF

HERE = devices.along(2)


@pytest.fixture
def model(branches):
    return replace(branches, runtime_name=AUTO)


def noted(profiles):
    """The note of each runtime that computes nothing."""
    return {p.runtime: p.note for p in profiles if not p.is_possible}


def test_cores_of_one_kind_are_timed_once(branches, monkeypatch):
    places = [Cores((core,)) for core in (0, 1, 0)]
    timed = []

    def profile(self, device, *_):
        timed.append(device)
        return Profile(str(device), (1.0,), (0.0,))

    monkeypatch.setattr(type(branches.runtime), "profile", profile)
    for kinds, cores in (((), [0]), ({1}, [0, 1])):
        timed.clear()
        monkeypatch.setattr(batches, "kinds_of", lambda numbers, k=kinds: numbers[0] in k)
        profiles = batches.checked_profiles(branches, places)
        assert [p.device for p in profiles] == list(map(str, places))
        assert timed == [Cores((core,)) for core in cores]


def test_a_model_that_was_not_read_from_onnx_runs_in_tvm_alone(branches):
    model = replace(branches, runtime_name=AUTO, onnx_file=None)
    assert [*model.runtimes] == [TVM]
    assert "needs an ONNX file" in model.left_out[ONNXRUNTIME]
    split = autosplit.plan(model, 2)
    assert split.runtimes == (TVM, TVM)


def test_a_runtime_that_cannot_be_profiled_is_left_out(model, monkeypatch):
    fail = Mock(side_effect=ModelError("onnxruntime cannot load the model"))
    monkeypatch.setattr(OnnxruntimeRuntime, "profile", fail)
    notes = noted(model.profiles(HERE[:1]))
    assert notes == {ONNXRUNTIME: "onnxruntime cannot load the model"}
    alone = replace(model, runtime_name=ONNXRUNTIME)
    with pytest.raises(ModelError, match="cannot load"):
        alone.profiles(HERE[:1])
    vars(in_use := replace(model))["runtime_in_use"] = ONNXRUNTIME
    with pytest.raises(ModelError, match="cannot load"):
        in_use.profile(HERE[0])


def test_a_runtime_with_wrong_outputs_is_left_out_of_a_study(model, monkeypatch):
    real = OnnxruntimeRuntime.whole

    def whole(self, *arguments, **options):
        (stage,) = real(self, *arguments)
        run = stage.run
        monkeypatch.setattr(stage, "run", lambda values: [v + 1 for v in run(values)])
        return [stage]

    monkeypatch.setattr(OnnxruntimeRuntime, "whole", whole)
    bench = LocalBench(model, HERE, BRIEF)
    assert "outputs of onnxruntime differ" in noted(bench.profile())[ONNXRUNTIME]


def test_a_split_by_hand_has_the_fastest_runtime_for_each_stage(model, monkeypatch):
    split = model.split([["first"]])
    times = {TVM: 1.0, ONNXRUNTIME: 2.0, "openvino": 3.0}

    def profile(self, device, runtime, *_):
        count = len(self.graph.ops)
        return Profile(str(device), (times[runtime],) * count, (0.0,) * count, runtime)

    monkeypatch.setattr(compiled_model.CompiledModel, "_profile_on", profile)
    assert api.fastest_runtimes(model, split.stages, HERE) == (TVM, TVM)


def test_a_cut_one_runtime_can_make_is_legal_and_of_one_alone_names_the_nearest(model, monkeypatch):
    names, alone = [op.name for op in model.graph.ops], replace(model, runtime_name=ONNXRUNTIME)
    monkeypatch.setattr(OnnxruntimeRuntime, "keep_together", (tuple(range(len(names))),))
    assert len(model.split([["first"]]).stages) == 2
    with pytest.raises(SplitError, match=r"cannot be separated.*use fewer stages"):
        alone.split([["first"]])
    monkeypatch.setattr(OnnxruntimeRuntime, "keep_together", ((0, 1),))
    with pytest.raises(SplitError) as refused:
        alone.split([names[:1]])
    assert f"runs ops {names[0]}, {names[1]} as one" in str(refused.value)
    (after,) = re.findall("--after (.+)", str(refused.value))
    assert len(alone.split([after.split(",")]).stages) == 2


def test_a_stage_with_an_opaque_op_is_in_a_runtime_that_computes_it(save):
    text = """g (float[1,8,16] x) => (float[8,1,1,16] y) {
        a = Relu(x)  t = Transpose<perm=[1,0,2]>(a)  y, h, c = LSTM<hidden_size=16>(t, w, r)
    }"""
    proto = nets.net(text, {"w": (1, 64, 16), "r": (1, 64, 16)})
    model = api.load_model(save(proto), runtime=AUTO)
    assert model.runtime_in_use == ONNXRUNTIME
    costs = api.costs_along(model, HERE).costs
    assert math.isinf(costs.rows[0].times[-1])
    split = autosplit.plan(model, 2)
    assert split.runtimes[-1] != TVM
    nets.judge(model, replace(split, runtimes=(TVM, ONNXRUNTIME)))


@pytest.mark.integration
def test_a_stage_that_no_runtime_can_compute_names_ops_reasons_and_a_free_cut(save):
    text = """g (float[1,3,8,8] x) => (float[1,1,1,4] y) {
        o = RoiAlign<mode="max", output_height=4, output_width=4>(x, r, b)
        l = ReduceLogSum<axes=[1]>(o)  m = ReduceMax<axes=[2]>(l)  y = Tanh(m)
    }"""
    weights = {"r": np.array([[0, 0, 6, 6]], np.float32), "b": np.array([0], np.int64)}
    model = api.load_model(save(nets.net(text, weights)), runtime=AUTO)
    opaque, inside = model.graph.names[:2]
    with pytest.raises(SplitError) as refused:
        api.fastest_runtimes(model, model.split([[inside]]).stages, HERE)
    assert f"tvm cannot compute op {opaque} (TVM samples regions" in str(refused.value)
    assert f"onnxruntime runs ops {inside}, " in str(refused.value)
    after = re.findall("--after ([^; ]+)", str(refused.value))[0]
    assert api.fastest_runtimes(model, model.split([after.split(",")]).stages, HERE)
