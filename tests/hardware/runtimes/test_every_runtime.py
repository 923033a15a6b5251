import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest

import autosplit
from autosplit.errors import ConfigError, MachineError
from autosplit.hardware.devices import device as devices
from autosplit.hardware.execution.stage_spec import StageSpec
from autosplit.hardware.measurement.parity import compare
from autosplit.hardware.runtimes.arrays import array_of
from autosplit.hardware.runtimes.openvino import runtime as openvino
from autosplit.hardware.runtimes.registry import EXACT, ONNXRUNTIME, OPENVINO
from tests import nets
from tests.hardware.fakes import PATIENCE_S

HERE = devices.along(2)
IN_PROCESSES = "openvino in processes"


@pytest.fixture(params=[*EXACT, pytest.param(IN_PROCESSES, marks=pytest.mark.integration)])
def runtime(request, monkeypatch):
    if request.param == IN_PROCESSES:
        # As if each stage had some of several cores.
        monkeypatch.setattr(openvino, "runs_here", lambda cores: False)
        return OPENVINO
    return request.param


@pytest.fixture
def model(runtime, branches):
    return replace(branches, runtime_name=runtime)


@pytest.mark.parametrize("runtime", EXACT)
def test_a_system_that_lacks_what_only_linux_has_profiles(save, runtime, monkeypatch, tmp_path):
    monkeypatch.setenv("AUTOSPLIT_CACHE", str(tmp_path))
    for name in ("memfd_create", "posix_fallocate", "sched_getaffinity", "sched_setaffinity"):
        monkeypatch.delattr(os, name)
    model = autosplit.load_model(save(nets.residual()), runtime=runtime)
    assert max(model.profile(HERE[0], 0.01).op_ms) > 0


def test_a_single_number_stays_one(save, runtime):
    kinds = ["int8", "int16", "uint8", "int32", "bool"]
    types = [onnx.TensorProto.DataType.Value(kind.upper()) for kind in kinds]
    casts = "  ".join(f"y{to} = Cast<to={to}>(x)" for to in types)
    ends = ", ".join(f"{kind} y{to}" for kind, to in zip(kinds, types, strict=True))
    text = f"g (float x) => ({ends}) {{ {casts} }}"
    model = autosplit.load_model(save(nets.net(text)), runtime=runtime)
    nets.judge(model, model.split([]))


def test_numbers_of_bfloat16_come_and_go(save, runtime):
    if runtime == ONNXRUNTIME:
        pytest.skip("onnxruntime takes no arrays of bfloat16")
    proto = nets.net("g (bfloat16[4] x) => (bfloat16[4] y) { y = Add(x, x) }", opset=18)
    split = autosplit.load_model(save(proto), runtime=runtime).split([])
    x = np.array([1, -3.2, 1e20, 0.1], ml_dtypes.bfloat16)
    with split.pipeline() as pipeline:
        (item,) = pipeline.run([{"x": x}])
    np.testing.assert_array_equal(array_of(item["y"]), x + x)


def test_what_a_caller_overwrites_is_not_the_model_s(save, runtime, tmp_path):
    text = "g (float[4,4] x) => (float[4,4] y, float[4,4] z) { y = MatMul(x, w) z = Identity(w) }"
    split = autosplit.load_model(save(nets.net(text, {"w": (4, 4)})), runtime=runtime).split([])
    split.export(tmp_path / "out")
    expected = split.model.reference_outputs
    for pipeline in (split.pipeline(), autosplit.load(tmp_path / "out")):
        with pipeline:
            for array in pipeline.run(expected.items)[0].values():
                array.fill(0)
            assert compare(pipeline.run(expected.items), expected.along).equal


def test_results_of_pipelines_side_by_side_are_in_order_and_outlive_them(model):
    split, items = model.split([["first"]]), model.items(9)
    strided = [{n: np.repeat(a, 2, -1)[..., ::2] for n, a in item.items()} for item in items]

    def run(_):
        with split.pipeline() as pipeline:
            results = pipeline.run(strided)  # arrays need not be contiguous
            pipeline.run(items[:3])
        return results

    with ThreadPoolExecutor(2) as threads:
        for results in threads.map(run, range(2)):
            assert compare(results, model.expected(items)).equal


def test_replicas_compute_at_the_same_time_each_on_its_core(model):
    stages = model.runtime.stages(model.stage_source.whole_stage, HERE)
    (item,) = model.items(1)
    values = [item[port.name] for port in model.stage_source.whole_stage.inputs]
    names = [port.name for port in model.stage_source.whole_stage.outputs]
    meeting, expected = threading.Barrier(2), model.expected([item]) * 20

    def compute(stage):
        stage.open()
        meeting.wait(PATIENCE_S)
        arrays = [[array_of(a).copy() for a in stage.run(values)] for _ in range(20)]
        computed = [dict(zip(names, results, strict=True)) for results in arrays]
        return compare(computed, expected).equal, os.sched_getaffinity(0)

    with ThreadPoolExecutor(2) as threads:
        computed = list(threads.map(compute, stages))
    assert computed == [(True, set(device.numbers)) for device in HERE]
    for stage in stages:
        stage.close()


def test_an_exported_part_runs(model, tmp_path):
    part = model.extract([model.graph.ops[0].name, *(op.name for op in model.graph.ops[1:3])])
    manifest = part.export(tmp_path / f"part{model.runtime.suffix}")
    with part.pipeline() as live, autosplit.load(manifest) as loaded:
        items = [{p.name: np.ones(p.shape, p.dtype) for p in part.wiring.inputs}]
        assert compare(loaded.run(items), live.run(items)).equal


def test_several_threads_load_models_at_once(branches):
    printed_to = sys.stdout
    with ThreadPoolExecutor(4) as threads:
        models = list(threads.map(autosplit.load_model, [branches.path] * 8))
    assert all(model.graph == branches.graph for model in models)
    assert sys.stdout is printed_to


def test_an_unknown_runtime_and_what_only_tvm_can_use_are_refused(save):
    file = save(nets.residual())
    with pytest.raises(ConfigError, match="runtime 'tensorrt' is unknown"):
        autosplit.load_model(file, runtime="tensorrt")
    text = "tuning 'records' is for TVM, but the stages run in onnxruntime"
    with pytest.raises(ConfigError, match=text):
        autosplit.load_model(file, runtime=ONNXRUNTIME, tuning=Path("records"))


@pytest.mark.parametrize(("runtime", "extra"), [(ONNXRUNTIME, "onnx"), (OPENVINO, OPENVINO)])
def test_without_its_package_the_extra_is_named(branches, monkeypatch, runtime, extra):
    split = replace(branches, runtime_name=runtime).split([["first"]])
    monkeypatch.setitem(sys.modules, runtime, None)
    with pytest.raises(MachineError, match=rf"pip install 'autosplit\[{extra}\]'"):
        split.pipeline()


@pytest.mark.parametrize("device", [devices.Cuda(0), devices.Rpc("h", 1)])
def test_other_devices_are_refused_with_the_runtime_for_them(branches, tmp_path, device):
    runtime, ports = branches.runtime_of(ONNXRUNTIME), StageSpec.planned((), (), ())
    runtime.check(HERE)
    assert (runtime.can_run(HERE[0]), runtime.can_run(device)) == (True, False)
    refused = f"not on '{device}'; use runtime tvm"
    with pytest.raises(ConfigError, match=refused):
        runtime.check([device])
    with pytest.raises(ConfigError, match=refused):
        runtime.load_stages(tmp_path / "absent.onnx", ports, [device])
